"""A trace in Apalache's Informal Trace Format as a page: steps over time, the ledgers as curves.

Traces of `checker export --itf` say who acts in which function; those of other tools need not, and then states are all
that is shown. Only booleans and integers are read: a state of this model has no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from checker.report.curves import LEDGERS, charts
from checker.report.load import ResultFileError, decoded
from checker.report.page import LANES, Step
from checker.report.places import Source
from checker.report.playback import SHOWN, Known, Playback, State, left_out, numbered, values, words
from checker.report.statements import statement
from checker.results import EngineInfo, Result, TraceStep
from checker.story import changes, sentence

_ABOUT_LEDGERS = ("paused-flush-succeeds", "ledgers-drain")
_TITLE = re.compile(
    r"(?P<profile>(?P<engine>[a-z]+)-(?P<version>\d[\w.]*)[^:]*): loop (?P<loop>[\w-]+), mode (?P<mode>[\w-]+), "
    r"storage (?P<storage>[\w-]+): (?P<property>[\w-]+) is refuted"
)


class Itf(msgspec.Struct, frozen=True):
    """The file, as far as it is read."""

    vars: Sequence[str]
    states: Sequence[Mapping[str, Any]]
    loop: int | None = None
    meta: Mapping[str, Any] = msgspec.field(default={}, name="#meta")

    @property
    def description(self) -> str:
        """What its writer says of it."""
        return str(self.meta.get("description", ""))


def read_itf(path: str, data: bytes) -> Itf:
    """The trace in a file. Raises ResultFileError."""
    found = decoded(path, data, Itf)
    if not found.states:
        raise ResultFileError(path, "a trace without states")
    if found.loop is not None and not 0 <= found.loop < len(found.states):
        raise ResultFileError(path, f"loop must be from 0 to {len(found.states) - 1}, is {found.loop}")
    return found


def playback(path: str, trace: Itf, source: Source) -> Playback:
    """The page of a trace. Raises ResultFileError for a value that is no boolean and no integer."""
    states = [_state(path, number, state, trace.vars) for number, state in enumerate(trace.states)]
    about = _TITLE.fullmatch(trace.description)
    property_id = about["property"] if about else ""
    steps = list(_steps(trace, states, about["mode"] if about else "", source))
    hidden = max(0, len(steps) - SHOWN)
    actors = dict.fromkeys(step.actor for step in steps)
    lanes = [*LANES, *(a for a in actors if a not in LANES)] if set(actors) & set(LANES) else list(actors)
    return Playback(
        kind="trace",
        title=f"{property_id} is refuted" if property_id else "A trace",
        property=property_id,
        statement=statement(property_id) if property_id else "",
        reason=trace.description or "a trace that does not say what it is of",
        facts=[Known("Written by", str(trace.meta.get("source", "unknown"))), Known("States", str(len(states)))],
        known=[],
        left_out=left_out(hidden, 0),
        lanes=lanes,
        steps=numbered(steps[hidden:]),
        charts=charts(states[hidden:], _stuck(property_id, trace, states[-1])) if len(states) > 1 else [],
        stays=trace.loop is not None,
        mark="repeats for ever",
        ending=[_ending(trace)] if trace.loop is not None else [],
    )


def engine_of(trace: Itf) -> EngineInfo:
    """Which engine's source the places are in; none where the trace does not say."""
    about = _TITLE.fullmatch(trace.description)
    return EngineInfo(about["engine"] if about else "", about["version"] if about else "", "", "trace", [])


def _stuck(property_id: str, trace: Itf, last: State) -> str | None:
    """The ledger in which an entry stays for ever, where the trace is about that."""
    if property_id not in _ABOUT_LEDGERS or trace.loop != len(trace.states) - 1:
        return None
    return next((name for name in LEDGERS if any(key.startswith(f"{name}_") for key in last)), None)


def _ending(trace: Itf) -> str:
    last = len(trace.states) - 1
    if trace.loop == last:
        return "And so it stays: the last state repeats for ever."
    return f"And then steps {(trace.loop or 0) + 1} to {last} repeat for ever."


def _steps(trace: Itf, states: Sequence[State], mode: str, source: Source) -> Iterator[Step]:
    for number, (before, after) in enumerate(pairwise(states), 1):
        meta = trace.states[number].get("#meta")
        told = meta if isinstance(meta, Mapping) else {}
        action, actor, engine = (str(told.get(key, "")) for key in ("action", "actor", "engine"))
        text = _sentence(action, actor, told.get("choices"), mode)
        repeats = trace.loop is not None and number > trace.loop
        yield Step(
            number=number,
            actor=actor or "step",
            words=words(action.split("(")[0] or f"to state {number}"),
            sentence=text,
            place=source.place(engine),
            engine=engine,
            changes=list(changes(before, after)),
            state=values(before, after),
            repeats=repeats,
        )


def _sentence(action: str, actor: str, choices: object, mode: str) -> str:
    if not action:
        return ""
    # A choice carries the name of its action; one of 0 says nothing.
    given = choices.items() if isinstance(choices, Mapping) else ()
    known = {str(name).rpartition(".")[2]: value for name, value in given if isinstance(value, int) and value}
    empty: dict[str, str | int] = {"mode": mode}
    step = TraceStep(action, actor, "", known, {})
    return sentence(step, Result("", "", empty, "refuted", "", "", "", None, 0.0))


def _state(path: str, number: int, state: Mapping[str, Any], names: Sequence[str]) -> State:
    found: dict[str, int | bool] = {}
    for name in names:
        value = _value(state.get(name))
        if value is None:
            problem = "is missing" if name not in state else "is no boolean and no integer"
            raise ResultFileError(path, f"states[{number}].{name} {problem}")
        if value:
            found[name] = value
    return found


def _value(value: object) -> int | bool | None:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, Mapping) and list(value) == ["#bigint"]:
        text = value["#bigint"]
        # So that a number of a million digits costs nothing.
        if isinstance(text, str) and re.fullmatch(r"-?[0-9]{1,30}", text):
            return int(text)
    return None
