"""Profiles with many ledgers, made for `matrix.py`: the bundled one, and ledgers of the usual form beside its own."""

from __future__ import annotations

from pathlib import Path

from spec.profile import DEFAULT_PROFILE, load_profile

LOOP, MODE, STORAGE = "normal", "retract", "none"
_SOURCE = "bench/synthetic.py:synthetic"


def synthetic(folder: Path, ledgers: int) -> Path:
    """A profile with so many ledgers in all. Each more is started by a result, served by a device, ended by the reap.

    The paused pass reaps, as with the remedy, so that the founding property is proved over all of them.
    """
    base = load_profile(DEFAULT_PROFILE)
    own = [name for name, facts in base.ledgers.items() if facts.needs is None]
    extra = [f"extra_{number:02}" for number in range(ledgers - len(own))]
    waits = ", ".join(f'"{name}"' for name in ("running", "last_batch", "result_pending", *own, *extra))
    lines = ["schema = 1", f'base = "{base.name}"', "[set.configuration]"]
    lines += [f'loop = ["{LOOP}"]', f'mode = ["{MODE}"]', f'storage = ["{STORAGE}"]']
    lines += [f"[set.loops.{LOOP}]", 'paused = ["reap", "record"]']
    for gate in base.gates:
        lines += [f"[set.gates.{gate}]", f"waits_for = [{waits}]"]
    for name in extra:
        lines += [
            f"[set.ledgers.{name}]",
            f'source = "{_SOURCE}"',
            f'reaper = "{_SOURCE}"',
            'created_by = "process"',
            'entry = "copies"',
            'stages = ["submitted", "ready"]',
            'metric = { submitted = "submitted", ready = "ready" }',
            "moves = [",
            f'    {{ from = "submitted", to = "ready", by = "device", fair = "weak", source = "{_SOURCE}" }},',
            f'    {{ from = "ready", to = "retired", by = "reap", source = "{_SOURCE}" }},',
            "]",
        ]
    path = folder / f"ledgers-{ledgers:02}.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
