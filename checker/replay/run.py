"""Replays traces: line after line, until the first one that the spec does not allow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from checker.digest import spec_digest
from checker.replay.differences import of_ranks
from checker.replay.explain import explain
from checker.replay.judge import Carried, Judge, UndecidedError
from checker.replay.reading import Place, Reading, Trace
from checker.replay.relation import Relations, UnsupportedError
from checker.replay.results import ACCEPTED, DIVERGES, UNKNOWN, Coverage, Divergence, Replayed
from engine_hooks.trace import PEER, End, Step, TraceHeader, TraceState
from spec.profile import Profile

_MOST_STATES = 100_000
_FIRST = TraceState()
_TURNS = 2
"""Micro-batches of a pipeline whose result is processed in the turn after."""


@dataclass(frozen=True)
class Options:
    """What is asked of a replay."""

    coverage: bool = False
    open: bool = False
    """A trace without an end is taken as far as it goes: its engine was killed, or still runs."""
    progress: Callable[[int], None] | None = None
    """Told the number of lines so far, now and then."""


class Judges:
    """One judge for each profile, loop and storage: what it has learned from one rank serves the next."""

    def __init__(self, load: Callable[[TraceHeader], Profile], allowed: frozenset[str] = frozenset()) -> None:
        """`load` gives the profile of a trace, with its remedies; `allowed`: the known differences let pass."""
        self._load = load
        self._allowed = allowed
        self._judges: dict[tuple[str, str, str, frozenset[str]], Judge] = {}

    @property
    def all(self) -> Iterable[Judge]:
        """Every judge so far."""
        return self._judges.values()

    def of(self, header: TraceHeader, *, fresh: bool = False) -> Judge:
        """The judge for a trace, or one that knows nothing yet. Raises UnsupportedError, and what `load` raises."""
        profile = self._load(header)
        if header.loop not in profile.configuration.loop:
            known = ", ".join(profile.configuration.loop)
            raise UnsupportedError(f"profile {profile.name} has no loop {header.loop!r}; it has {known}")
        if header.storage not in profile.configuration.storage:
            known = ", ".join(profile.configuration.storage)
            raise UnsupportedError(f"profile {profile.name} says nothing of storage {header.storage!r}; it has {known}")
        _check_turns(header, profile)
        allowed = self._allowed | of_ranks(header)
        key = (spec_digest(profile), header.loop, header.storage, allowed)
        if fresh or key not in self._judges:
            relations = Relations(profile, header.loop, header.storage, allowed)
            self._judges[key] = Judge(relations, telling=fresh)
        variables = self._judges[key].relations.variables
        if unknown := [name for name in header.unobserved if name in variables]:
            raise UnsupportedError(f"the engine could not be asked for {', '.join(unknown)}")
        counters = {f"{name}_{stage}": name for name, ledger in profile.ledgers.items() for stage in ledger.stages}
        own = {counters.get(name, name) for name in variables if name.startswith(PEER)}
        if uncounted := sorted(own - set(header.counted)):
            raise UnsupportedError(
                f"the trace was recorded without {', '.join(uncounted)}; record it with this version"
            )
        return self._judges[key]

    def digest(self, header: TraceHeader) -> str:
        """Of the spec without remedies, since that of the hooks is of it too."""
        return spec_digest(self._load(msgspec.structs.replace(header, remedies=())))


def _check_turns(header: TraceHeader, profile: Profile) -> None:
    """Raises UnsupportedError for a pipeline whose micro-batches are not those of the spec."""
    turns = header.sizes.get("micro_batches", 1)
    if not header.sizes and header.loop.endswith("pp"):
        raise UnsupportedError("the trace was recorded without its micro-batches; record it with this version")
    known = _TURNS if profile.loops[header.loop].micro_batches else 1
    if turns not in {1, known}:
        said = f"profile {profile.name} models {known} in {header.loop}"
        raise UnsupportedError(f"a pipeline of {turns} micro-batches; {said}")


@dataclass
class _Seen:
    """What a replay has seen so far."""

    lines: int = 0
    steps: int = 0
    ended: str = ""
    divergence: Divergence | None = None
    reason: str = ""
    differences: dict[str, int] = field(default_factory=dict)


def replay(trace: Trace, judges: Judges, options: Options | None = None) -> Replayed:
    """Whether the spec accepts one trace. Raises TraceError where it is not what was written."""
    options = options or Options()
    began = time.perf_counter()
    header = trace.header
    seen, judge, states = _Seen(), None, _States()
    questions, known = 0, Counter[str]()
    try:
        # What is covered is told by what had to be learned.
        judge = judges.of(header, fresh=options.coverage)
        questions, known = judge.statistics.questions, judge.statistics.differences.copy()
        _follow(trace, judge, seen, states if options.coverage else None, options)
    except UnsupportedError as error:
        seen.reason = str(error)
        _check_rest(trace, options)
    except UndecidedError as error:
        seen.reason = f"the solver gave up at a line ({error})"
        _check_rest(trace, options)
    if judge is not None:
        seen.differences = dict(judge.statistics.differences - known)
    verdict = _verdict(seen, options)
    return Replayed(
        trace=trace.name,
        verdict=verdict,
        reason=seen.reason,
        engine=f"{header.engine} {header.engine_version}",
        profile=header.profile,
        spec_digest=judges.digest(header) if judge else "",
        loop=header.loop,
        storage=header.storage,
        remedies=header.remedies,
        rank=header.rank,
        steps=seen.steps,
        lines=seen.lines,
        from_start=header.part == 1,
        ended=bool(seen.ended),
        seconds=round(time.perf_counter() - began, 3),
        questions=judge.statistics.questions - questions if judge else 0,
        recorded_digest=header.spec_digest,
        differences=dict(sorted(seen.differences.items())),
        divergence=seen.divergence,
        coverage=_coverage(judge, trace, states, verdict) if judge and options.coverage else None,
    )


def _check_rest(trace: Trace, options: Options) -> None:
    """Read it all the same: a file that is no trace is that, whatever can be said of its engine."""
    for _ in Reading(trace, open_=options.open):
        pass


def _verdict(seen: _Seen, options: Options) -> str:
    if seen.divergence is not None:
        return DIVERGES
    if seen.reason:
        return UNKNOWN
    if seen.ended in ("lost", "dropped"):
        seen.reason = f"the trace ends early ({seen.ended}): what came then is not known"
        return UNKNOWN
    if not seen.ended and not options.open:
        seen.reason = f"the trace has no end: what came after line {seen.lines} is not known (--open takes it as it is)"
        return UNKNOWN
    return ACCEPTED


class _States:
    """The different states that lines show."""

    def __init__(self) -> None:
        self.found: set[TraceState] = set()
        self.whole = True

    def add(self, state: TraceState) -> None:
        if len(self.found) >= _MOST_STATES:
            self.whole = False
            return
        self.found.add(_without_counters(state))


def _without_counters(state: TraceState) -> TraceState:
    return msgspec.structs.replace(state, lookups=0, forwards=0)


def _follow(trace: Trace, judge: Judge, seen: _Seen, states: _States | None, options: Options) -> None:
    """Every line, until the end or the first that is not allowed; the rest must be a trace all the same."""
    judged, told, reading = judge.judge, options.progress, Reading(trace, open_=options.open)
    x: TraceState | None = None
    carried = Carried() if trace.header.part == 1 else _anything()
    for line in reading:
        if isinstance(line, End):
            seen.ended = line.reason
            continue
        if seen.divergence is not None:
            continue
        y = line.state
        after: Carried | None
        if x is None:
            after = carried if _begins(trace, reading.place, line) else None
        else:
            after = judged(line.do, line.how, x, y, carried, reading)
            if line.times > 1 and after is not None:
                after = judged(line.do, line.how, y, y, after, reading)
        if after is None:
            seen.divergence = explain(judge, reading.place, x or _FIRST, line, carried)
            continue
        x, carried = y, after
        seen.steps += line.times
        if states is not None:
            states.add(y)
        if told is not None and not line.n & 65_535:
            told(reading.number)
    seen.lines = reading.number


def _begins(trace: Trace, place: Place, line: Step) -> bool:
    """Whether a trace may begin with this line: the start of an idle engine, or any state where it began earlier."""
    if trace.header.part > 1:
        return True
    if line.do != "start":
        raise place.error(f"the first step is a {line.do}, not the start of the engine")
    return line.state == _FIRST


def _anything() -> Carried:
    """What may be carried into the middle of a trace: as much as can be."""
    return Carried(has_host=True, prefetch_budget=1 << 40, prefix_lost=True)


def _coverage(judge: Judge, trace: Trace, states: _States, verdict: str) -> Coverage:
    first: dict[str, str] = {}
    for known in judge.statistics.cubes:
        for action in known.actions:
            first.setdefault(action, f"line {known.line}")
    actions = judge.relations.actions
    from_start = trace.header.part == 1 and verdict != DIVERGES
    return Coverage(
        actions={name: first[name] for name in actions if name in first},
        missing=tuple(name for name in actions if name not in first),
        states=len(states.found),
        states_whole=states.whole,
        unreachable=0 if from_start else None,
    )
