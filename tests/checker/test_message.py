"""The monitor's line taken apart: of what the monitor writes nothing is lost, and other text stays whole."""

from checker.message import Message, parts
from engine_hooks.compiled import compiled_profile
from engine_hooks.monitor_text import NEEDS, Finding, describe
from engine_hooks.observation import Observation

PROFILE = compiled_profile("sglang", "0.5.23")
SEEN = Observation(
    sequence=7, loop="normal", mode="retract", paused=True, write_through_submitted=1, prefetch_query=2,
    oldest={"prefetch": 10.0},
)  # fmt: skip


def test_every_property_in_every_form_comes_apart():
    for name in NEEDS:
        for seen in (None, SEEN):
            for since in (None, 11.0):
                line = describe(PROFILE, Finding(name, "what was; seen", seen, 12.5, since))
                found = parts(line)
                assert found.what == "what was; seen"
                assert found.now
                assert line.endswith(f"; now: {found.now}")
                assert found.loop == ("normal" if seen else "")
                assert found.paused == ", ".join(
                    (["paused for 1.50 s"] if since else []) + (["mode retract"] if seen else [])
                )
                for part in (found.place, *found.held):
                    assert part in line


def test_each_ledger_is_a_part_of_its_own():
    line = describe(PROFILE, Finding("paused-flush-succeeds", "w", SEEN, 12.5, 11.0, ("write_through",)))
    first, second = parts(line).held
    assert first.endswith(":writing_check would have to run)")
    assert second.endswith(" retires it when it is done)")
    assert first.startswith("write_through (1 submitted; srt/mem_cache/")
    assert second.startswith("prefetch (2 queued, the oldest seen 2.50 s ago; srt/mem_cache/")
    assert parts(line).place == "tp0 pp0 dp0, pass 7 of loop normal"


def test_other_text_stays_whole():
    for text in ("", "x", "does not hold: ; now", "a does not hold\n: b; in flight: c"):
        assert parts(text) == Message(text)
