"""A flight record as a page: passes and events over time, the ledgers as curves, the stuck part, what is known.

All that it shows is in the record. The engine's function for a ledger comes from the compiled profile, and only where
that is the one with which the record was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from checker.clock import utc
from checker.message import parts
from checker.record import Record
from checker.report.curves import LEDGERS, charts
from checker.report.page import Step
from checker.report.places import Source
from checker.report.playback import SHOWN, Known, Playback, State, left_out, numbered, values, words
from checker.report.statements import statement
from checker.results import EngineInfo
from checker.story import changes
from engine_hooks.compiled import CompiledLedger, compiled_profile
from engine_hooks.record import Event, Header, Pass

_LANES = ("trainer", "scheduler", "monitor")
_SWITCHES: Mapping[str, tuple[str, str, str]] = {
    "paused": ("trainer", "pause_generation: the {0} is paused", "continue_generation: the {0} resumes"),
    "stuck": ("monitor", "{0}: nothing that this pause still does makes it true", "{0} is no longer stuck"),
    "flush_blocked": ("monitor", "{0} holds the flush back", "{0} no longer holds the flush back"),
    "update_start_timestamp_seconds": ("trainer", "a weight update begins", "the weight update is answered"),
    "version_mismatch": (
        "scheduler", "scheduler and tokenizer have different weight versions", "they have the same version again",
    ),
    "hook_applied": ("monitor", "hook {0} works", "hook {0} is lost: what needs it is no longer checked"),
}  # fmt: skip
"""Series of a gauge: who acts, what a value says, what 0 says."""
_SHORT: Mapping[str, str] = {
    "flushes_total": "flush",
    "updates_total": "update",
    "weight_epoch": "weights loaded",
    "update_start_timestamp_seconds": "update",
    "version_mismatch": "versions",
    "hook_applied": "hook",
    "flush_blocked": "blocked",
}


@dataclass
class _Seen:
    """What has been told up to some line."""

    at: float
    """Of the violation."""
    state: State = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    """Properties."""
    blocked: set[str] = field(default_factory=set)
    """Ledgers and terms of the engine's gate."""
    lost: set[str] = field(default_factory=set)
    """Hooks."""

    def noted(self, series: str) -> set[str] | None:
        """What a series switches on and off."""
        return {"stuck": self.stuck, "flush_blocked": self.blocked, "hook_applied": self.lost}.get(series)

    def is_news(self, line: Pass | Event) -> bool:
        """Whether a line says anything new: each series is shown once when an engine starts."""
        noted = self.noted(line.series) if isinstance(line, Event) else None
        if noted is None or not isinstance(line, Event) or not line.labels:
            return True
        return _is_on(line) != (line.labels[0] in noted)


def _is_on(line: Event) -> bool:
    return bool(line.value) != (line.series == "hook_applied")


def playback(record: Record, source: Source) -> Playback:
    """The page of one record."""
    header = record.header
    seen, steps, states = _Seen(header.at), list[Step](), list[State]([{}])
    for line in filter(seen.is_news, record.lines):
        steps.append(_step(len(steps) + 1, line, seen))
        states.append(seen.state)
    said, hidden = parts(header.message), max(0, len(steps) - SHOWN)
    stuck = bool(seen.stuck)
    ledger = next((name for name in LEDGERS if name in seen.blocked), None) if stuck else None
    return Playback(
        kind="flight record",
        title=f"{header.engine} {header.engine_version}: {header.property} does not hold",
        property=header.property,
        statement=statement(header.property),
        reason=said.what,
        facts=list(_facts(header)),
        known=list(_known(header, seen, source)),
        left_out=left_out(hidden, header.forgotten),
        lanes=_LANES,
        steps=numbered(steps[hidden:]),
        charts=charts(states[hidden:], ledger) if steps else [],
        stays=stuck,
        mark="stuck",
        ending=[f"{said.what}.", f"Now: {said.now}." if said.now else ""] if stuck else [],
    )


def _step(number: int, line: Pass | Event, seen: _Seen) -> Step:
    before = seen.state
    if isinstance(line, Pass):
        actor, short, told = "scheduler", "paused pass" if line.state.paused else "pass", _passes(line)
        seen.state = _state(line.state)
    else:
        actor, short, told = _event(line, seen)
    marked = bool(seen.stuck)
    state = values(before, seen.state, sorted(seen.blocked) if marked else ())
    told = f"{told} ({_when(line.at - seen.at)})"
    return Step(number, actor, words(short), told, None, "", list(changes(before, seen.state)), state, marked)


def _state(state: msgspec.Struct) -> State:
    return {name: value for name, value in msgspec.structs.asdict(state).items() if value}


def _when(seconds: float) -> str:
    if abs(seconds) < 0.0005:  # noqa: PLR2004 - what is shown has three digits
        return "at the violation"
    return f"{abs(seconds):.3f} s {'after' if seconds > 0 else 'before'} the violation"


def _passes(line: Pass) -> str:
    kind = "paused" if line.state.paused else "running"
    what = f"{kind} pass {line.first}" if line.times == 1 else f"{kind} passes {line.first} to {line.last}"
    told = [what if line.times == 1 else f"{what}, {line.times} seen, all alike"]
    if line.recorded_idle is not None:
        told.append(f"recorded {'idle' if line.recorded_idle else 'active'}")
    if line.unmodelled:
        told.append(f"also closed, and not modelled: {', '.join(line.unmodelled)}")
    told += [f"{name}: the oldest entry {line.at - at:.2f} s old" for name, at in sorted(line.oldest.items())]
    return "; ".join(told)


def _event(line: Event, seen: _Seen) -> tuple[str, str, str]:
    """Who acts, in a word, in a sentence. Notes what is stuck and blocked from here on."""
    labels = list(line.labels) or [""]
    short = _SHORT.get(line.series, line.series)
    again = f", {line.times} times" if line.times > 1 else ""
    if line.series in ("flushes_total", "updates_total") and len(labels) > 1:
        return "trainer", short, f"{short} ({labels[0]}): {labels[1]}{again}"
    if line.series == "gate":
        return "scheduler", "gate", f"the gate {labels[0]} is found open{again}"
    if line.series == "weight_epoch":
        return "scheduler", short, f"weights are loaded: epoch {line.value or 0:g}"
    if line.series not in _SWITCHES:
        return (
            "monitor",
            short,
            f"{line.series} {', '.join(line.labels)} {line.value if line.value is not None else ''}",
        )
    noted = seen.noted(line.series)
    if noted is not None:
        (noted.add if _is_on(line) else noted.discard)(labels[0])
    actor, yes, no = _SWITCHES[line.series]
    return actor, short, (yes if line.value else no).format(labels[0]) + again


def _facts(header: Header) -> Iterator[Known]:
    rank = ", ".join(f"{name} {number}" for name, number in header.rank.items())
    yield Known("Engine", f"{header.engine} {header.engine_version}, loop {header.loop}, rank {rank or 'unknown'}")
    yield Known("Storage tier", header.storage or "no pause before")
    yield Known("Remedies", ", ".join(header.remedies) or "none")
    yield Known("Seen", f"{utc(header.at)}, in pass {header.pass_number}")
    yield Known("Profile", f"{header.profile}, spec {header.spec_digest}, Quiesce {header.version}")


def _known(header: Header, seen: _Seen, source: Source) -> Iterator[Known]:
    said = parts(header.message)
    if said.paused:
        yield Known("Since", said.paused)
    for ledger in said.held:
        yield Known("In flight", ledger)
    ledgers = _compiled(header)
    for name in sorted(seen.blocked):
        known = ledgers.get(name)
        if known is None:
            yield Known("Holds the flush back", name)
        else:
            told = f"{name}, which this function would have had to retire"
            yield Known("Holds the flush back", told, source.place(known.reaper))
    if said.now:
        yield Known("Now", said.now)
    if not ledgers:
        why = f"spec {header.spec_digest} of profile {header.profile} is not the one of this version"
        yield Known("Not known", f"which functions would have had to run: {why}")


def _compiled(header: Header) -> Mapping[str, CompiledLedger]:
    profile = compiled_profile(header.engine, header.engine_version)
    return profile.ledgers if profile is not None and profile.spec_digest == header.spec_digest else {}


def engine_of(header: Header) -> EngineInfo:
    """Which engine's source the places are in."""
    return EngineInfo(header.engine, header.engine_version, header.profile, "record", list(header.remedies))
