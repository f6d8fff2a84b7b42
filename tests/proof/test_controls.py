"""Controls, caches and loops beyond the founding case: found for their reason, and proved where they are repaired."""

from __future__ import annotations

import pytest
from proof_desk import Desk

from checker.reasons import Case, why
from checker.workbench import Workbench
from spec.profile import load_profile
from spec.properties import catalogue
from spec.protocol import Protocol

BASE = "sglang-0.5.23"
REAP, WAITS = "reap-while-paused", "flush-waits"
FLUSH, DRAIN, TRUTH, STALE = "paused-flush-succeeds", "ledgers-drain", "update-tells-truth", "no-stale-kv"
GRANTED, SURVIVES, ANSWERED = "paused-controls-succeed", "engine-survives", "control-answered"

# Profile (what is added to its name), place, remedies, property, the claim about what; what the reason begins with.
FOUND = [
    ("-controls", "normal retract file", (), GRANTED, "release", "release waits for what no paused step retires"),
    ("-controls", "overlap retract file", (REAP,), GRANTED, "attach", "waiting requests block attach, paused or not"),
    ("-controls", "normal retract file", (REAP,), GRANTED, "detach", "waiting requests block detach, paused or not"),
    ("-controls", "normal retract file", (), SURVIVES, "raised", "the re"),
    ("-controls", "normal in_place file", (), SURVIVES, "released", "a forward is launched while the memory"),
    ("-controls", "normal retract file", (), "flush-tells-truth", "clear", "a clear is answered with success while"),
    ("-distributed", "normal retract none", (), ANSWERED, "load", "an update waits for a sender that sends nothing"),
    ("-distributed", "overlap in_place none", (), TRUTH, "partial", "a forward runs on weights that a failed update"),
    ("-distributed", "normal retract none", (), TRUTH, "session", "a forward runs while a weight-update session"),
    ("-caches", "normal retract none", (WAITS,), TRUTH, "", "the update is answered with success while embedding"),
    ("-caches", "normal retract none", (), STALE, "", "a forward may read KV of the old weights from"),
    ("-mlx", "mlx-overlap retract none", (), FLUSH, "", "write_through is reaped by no paused step"),
    ("-mlx", "mlx-overlap in_place file", (), DRAIN, "", "write_through is reaped by no paused step"),
    ("-lmcache", "normal retract none", (REAP,), FLUSH, "", "lmcache_lookup is reaped by no paused step"),
    ("-lmcache", "overlap retract none", (WAITS,), TRUTH, "", "the update is answered with success while lmcache"),
    ("-hisparse", "overlap retract none", (REAP,), FLUSH, "", "hisparse_staging is reaped by no paused step"),
    ("-dllm", "normal retract none", (REAP,), FLUSH, "", "dllm_staging is reaped by no paused step"),
    ("-dllm", "normal retract none", (), SURVIVES, "raised", "a retracted request comes again to a queue"),
]

# The same, with what repairs it, and how many claims are proved.
REPAIRED = [
    ("", "normal in_place none", ("abort-reaches-all",), "abort-answered", "", 1),
    ("", "normal retract none", ("abort-reaches-all",), "abort-answered", "", 1),
    ("", "overlap retract none", ("abort-reaches-all",), "abort-answered", "", 1),
    ("", "overlap in_place none", ("update-waits-for-forward",), "no-forward-during-load", "", 1),
    ("", "normal retract file", ("flush-outwaits-threads",), SURVIVES, "prefetch", 1),
    ("", "overlap retract file", (REAP, "flush-outwaits-threads"), FLUSH, "", 2),
    ("-controls", "normal retract file", (REAP, "controls-ignore-waiting"), GRANTED, "", 3),
    ("-controls", "overlap retract file", (REAP, "controls-ignore-waiting"), GRANTED, "attach", 1),
    ("-controls", "normal in_place file", ("controls-answer",), SURVIVES, "released", 1),
    ("-controls", "normal retract file", ("clear-tells-truth",), "flush-tells-truth", "clear", 1),
    ("-controls", "normal retract file", (REAP, "clear-tells-truth"), GRANTED, "clear", 1),
    ("-distributed", "normal retract none", ("update-has-a-deadline",), ANSWERED, "load", 1),
    ("-distributed", "overlap in_place none", ("continue-needs-whole-weights",), TRUTH, "partial", 1),
    ("-distributed", "normal retract none", ("continue-needs-whole-weights",), TRUTH, "session", 1),
    ("-distributed", "overlap retract none", (REAP, WAITS, "update-has-a-deadline"), FLUSH, "", 2),
    ("-distributed", "overlap retract none", (REAP, WAITS, "update-has-a-deadline"), DRAIN, "write_through", 1),
    ("-caches", "normal retract none", (WAITS, "flush-clears-embeddings"), TRUTH, "", 4),
    ("-caches", "normal in_place none", (WAITS, "flush-clears-embeddings"), STALE, "", 1),
    ("-mlx", "mlx-overlap retract none", (REAP,), FLUSH, "", 2),
    ("-mlx", "mlx-overlap in_place none", (REAP,), DRAIN, "write_through", 1),
    ("-lmcache", "normal retract none", (REAP, "flush-drops-lookups"), FLUSH, "", 2),
    ("-lmcache", "normal retract none", ("lookups-end-while-paused",), DRAIN, "", 3),
    ("-lmcache", "overlap retract none", (WAITS, "epoch-in-lmcache-key"), TRUTH, "", 4),
    ("-hisparse", "overlap retract none", ("staging-while-paused",), FLUSH, "", 2),
    ("-hisparse", "normal retract none", ("retract-ends-staging",), FLUSH, "", 2),
    ("-dllm", "normal retract none", ("retract-ends-staging",), FLUSH, "", 2),
    ("-dllm", "normal retract none", ("retract-ends-staging",), SURVIVES, "raised", 1),
]


def _name(case: tuple[object, ...]) -> str:
    return "-".join(str(part).replace(" ", "-") for part in case[:5])


@pytest.mark.parametrize("case", FOUND, ids=_name)
def test_found_beyond_the_founding_case(desk: Desk, case: tuple[str, str, tuple[str, ...], str, str, str]) -> None:
    more, place, remedies, property_id, about, reason = case
    found = desk(property_id, place, profile=BASE + more, remedies=remedies, about=about)
    last = found[-1]
    assert last.confirmed is not None, [d.verdict.value for d in found]
    profile = load_profile(BASE + more).with_remedies(remedies)
    case_ = Case(Protocol(profile, profile.place(place)), last.confirmed, last.part.about, last.method)
    assert why(property_id, case_).text.startswith(reason)


def test_work_without_end_is_found_before_wide_ranks_are_tried() -> None:
    passes = ["reap", "schedule", "launch", "process", "record"]
    profile = load_profile(BASE).with_difference({"loops": {"normal": {"paused": passes}}})
    bench = Workbench(profile, profile.place("normal in_place file"))
    found = bench.decide(catalogue()["paused-work-ends"])[-1]
    assert (found.verdict.value, found.method) == ("refuted", "fair-lasso")
    assert bench.tally.queries < 600


@pytest.mark.parametrize("case", REPAIRED, ids=_name)
def test_proved_where_that_is_repaired(desk: Desk, case: tuple[str, str, tuple[str, ...], str, str, int]) -> None:
    more, place, remedies, property_id, about, claims = case
    found = desk(property_id, place, profile=BASE + more, remedies=remedies, about=about)
    assert [d.verdict.value for d in found] == ["proved"] * claims
