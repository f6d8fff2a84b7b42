"""What the series of one engine mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from checker.alerts import names
from checker.alerts.durations import Durations
from checker.doctor.fetch import LATE, SERVER
from checker.doctor.results import Blocker, Diagnosis, Flush, State
from checker.doctor.scrape import Scrape
from engine_hooks.metrics import INFO_LABELS, RANK_LABELS
from engine_hooks.monitor_text import NEEDS

_LIMITS = Durations()
"""The durations of the alerts: doctor and pager must not disagree."""
_FLUSHES = "paused-flush-succeeds"
_COMES_AND_GOES = "stuck_region"
_PROFILE = "profile"
"""The hook that a version without a profile lacks, with all the others."""
SEES_LOADS = "update"
"""The hook without which nothing is known of weight loads."""
_REQUESTS = ("running", "waiting")


@dataclass(frozen=True)
class Own:
    """What the engine's own endpoints say."""

    version: str = ""
    scheduler_versions: tuple[str, ...] = ()
    tokenizer_versions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def age(seconds: float) -> str:
    """For a person: `12 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = int(max(0.0, seconds))
    minutes, rest = divmod(whole, 60)
    if minutes == 0:
        return f"{rest} s"
    hours, left = divmod(minutes, 60)
    return f"{minutes} min {rest} s" if hours == 0 else f"{hours} h {left} min"


class Reading:
    """One scrape, read at one moment of the engine's clock."""

    def __init__(self, url: str, found: Scrape, own: Own, now: float) -> None:
        """`now` is the engine's clock (Unix s)."""
        self.url, self.found, self.own, self.now = url, found, own, now
        self.lost = tuple(hook for hook, values in found.by("hook_applied", "hook").items() if min(values) == 0)
        self.stuck = tuple(p for p, values in found.by("stuck", "property").items() if max(values) == 1)
        self.paused_since = self._start("pause_start_timestamp_seconds")
        # The flag without a start is a pause too, since when is not known.
        self.paused = self.paused_since is not None or self._flag("paused")
        # In mode abort the tokenizer alone pauses, and no flush depends on a paused pass.
        start = self._start("pause_start_timestamp_seconds", process="scheduler")
        self.passes_paused = start is not None or self._flag("paused", process="scheduler")
        self.updating_since = self._start("update_start_timestamp_seconds")
        self.loads = tuple(sorted({int(s.value) for s in found.of("weight_epoch")}))
        counted = {p: int(sum(values)) for p, values in found.by("violations_total", "property").items()}
        self.violations = {p: count for p, count in counted.items() if count}
        self.flush = self._flush()

    def diagnosis(self) -> Diagnosis:
        """The whole of it."""
        state = self._state()
        ranks = {tuple(s.labels[name] for name in RANK_LABELS) for s in self.found.of("info")}
        return Diagnosis(
            url=self.url,
            state=state.value,
            summary=self._summary(state),
            engine=self._cards("engine", "engine_version", form="{} {}"),
            ranks=len(ranks),
            monitor=self._cards("version", "spec_digest", form="quiesce {} with spec {}"),
            watched=self.watched,
            lost_hooks=self.lost,
            remedies=self.remedies,
            paused=self.paused,
            paused_since=self.paused_since,
            paused_seconds=self._age(self.paused_since),
            updating_seconds=self._age(self.updating_since),
            flush=self.flush,
            weight_loads=() if SEES_LOADS in self.lost else self.loads,
            versions={"scheduler": self.own.scheduler_versions, "tokenizer": self.own.tokenizer_versions},
            violations=self.violations,
            notes=(*self.own.notes, *self._unknown_version, *self._dropped),
            runbooks=tuple(dict.fromkeys(self._runbooks())),
        )

    @property
    def watched(self) -> tuple[str, ...]:
        """The properties that are checked now, on every rank."""
        exported = self.found.by("violations_total", "property")
        return tuple(p for p in exported if p in NEEDS and not self._needs(p) & set(self.lost))

    def _needs(self, property_id: str) -> frozenset[str]:
        """The hooks that a property needs now; the stuck region is that of the current pause."""
        region = property_id == _FLUSHES and self.passes_paused
        return NEEDS[property_id] | (frozenset((_COMES_AND_GOES,)) if region else frozenset())

    @property
    def remedies(self) -> tuple[str, ...]:
        """Active on all ranks."""
        return tuple(r for r, values in self.found.by("remedy_active", "remedy").items() if min(values) == 1)

    @property
    def _unknown_version(self) -> Iterator[str]:
        if _PROFILE in self.lost:
            engine = self._cards("engine", "engine_version", form="{} {}")
            yield f"Quiesce has no profile of {engine}: nothing is watched there, and no remedy is active"

    @property
    def _dropped(self) -> Iterator[str]:
        counted = self.found.by("trace_events_dropped_total", "reason")
        told = ", ".join(f"{reason} {sum(values):.0f}" for reason, values in counted.items() if sum(values))
        if told:
            yield f"lost from traces and flight records: {told} (passes and events); see the log of the engine"

    def _cards(self, *labels: str, form: str) -> str:
        kinds = {tuple(s.labels[label] for label in labels) for s in self.found.of("info")}
        return ", ".join(form.format(*kind) for kind in sorted(kinds))

    def _start(self, name: str, **labels: str) -> float | None:
        """When something began that is under way on some rank."""
        starts = [s.value for s in self.found.of(name, **labels) if s.value > 0]
        return min(starts) if starts else None

    def _flag(self, name: str, **labels: str) -> bool:
        """Whether a gauge of 0 or 1 is 1 on some rank."""
        return any(s.value for s in self.found.of(name, **labels))

    def _age(self, since: float | None) -> float | None:
        return None if since is None else round(max(0.0, self.now - since), 3)

    def _flush(self) -> Flush | None:
        blockers = [b for b, values in self.found.by("flush_blocked", "ledger").items() if max(values) == 1]
        if not blockers and not self.stuck:
            return None
        found = [self._blocker(name) for name in blockers]
        can, because = self._can_succeed(found)
        return Flush(found, can, because)

    def _blocker(self, ledger: str) -> Blocker:
        entries = int(sum(s.value for s in self.found.of("ledger_entries", ledger=ledger)))
        oldest = [s.value for s in self.found.of("ledger_oldest_timestamp_seconds", ledger=ledger) if s.value > 0]
        return Blocker(ledger, entries, self._age(min(oldest)) if oldest else None)

    def _can_succeed(self, blockers: list[Blocker]) -> tuple[str, str]:
        if self.stuck:
            return "no", "no paused pass retires what holds it back; this is proved, and no retry helps"
        unseen = sorted(self._needs(_FLUSHES) & set(self.lost))
        if unseen:
            return "unknown", f"hook {', '.join(unseen)} does not work"
        if self.passes_paused and any(blocker.name == "running" for blocker in blockers):
            return "unknown", "requests run; if this pause is in_place it keeps them until it is resumed"
        old = [blocker.name for blocker in blockers if (blocker.seconds or 0) > _LIMITS.settle]
        if old:
            return "unknown", f"no copy should take so long; what {', '.join(old)} waits for may be lost"
        return "yes", f"once {', '.join(blocker.name for blocker in blockers)} is done"

    def _state(self) -> State:
        overdue = (self._age(self.updating_since) or 0) > _LIMITS.update
        if self.stuck or overdue:
            return State.STUCK
        if self.violations or self._disagree:
            return State.VIOLATED
        if self._blind or self._forgotten or (self.flush is not None and self.flush.can_succeed == "unknown"):
            return State.CANNOT_TELL
        return State.HEALTHY

    @property
    def _forgotten(self) -> bool:
        """Paused for so long that it is paged; whether somebody will resume it is not seen here."""
        return (self._age(self.paused_since) or 0) > _LIMITS.paused

    @property
    def _disagree(self) -> bool:
        return len(self.loads) > 1 or self._versions_differ

    @property
    def _versions_differ(self) -> bool:
        """By what the ranks export, or by what scheduler and tokenizer answer."""
        said = {*self.own.scheduler_versions, *self.own.tokenizer_versions}
        return any(s.value for s in self.found.of("version_mismatch")) or len(said) > 1

    @property
    def _blind(self) -> bool:
        """Whether something that matters now is not seen. `stuck_region` matters in a pause only."""
        lost = set(self.lost) - (set() if self.passes_paused else {_COMES_AND_GOES})
        # What asks the schedulers was not answered: what they export may be old.
        return bool(lost) or self._silent

    @property
    def _silent(self) -> bool:
        return any(note.startswith(f"{SERVER}: {LATE}") for note in self.own.notes)

    def _summary(self, state: State) -> str:
        parts = [f"paused {age(self.now - self.paused_since)}" if self.paused_since is not None else "running"]
        if self.paused and self.paused_since is None:
            parts = ["paused"]
        if self.updating_since is not None:
            parts.append(f"a weight update is being handled for {age(self.now - self.updating_since)}")
        if self.flush is not None:
            names_ = ", ".join(blocker.name for blocker in self.flush.blockers) or "something"
            says = {"no": "cannot succeed before continue", "yes": "can still succeed"}
            parts.append(f"{names_} holds a flush back, which {says.get(self.flush.can_succeed, 'may succeed or not')}")
        if self._disagree:
            parts.append("weights or versions differ")
        if self.violations:
            parts.append(f"violated since the start: {', '.join(f'{p} {n}' for p, n in self.violations.items())}")
        if state is State.CANNOT_TELL and self.lost:
            parts.append(f"not seen: {', '.join(self.lost)}")
        if self._silent:
            parts.append("its schedulers do not answer")
        if state is State.CANNOT_TELL and self._forgotten:
            parts.append("nobody has resumed it")
        if state is State.HEALTHY:
            parts.append(f"{len(self.watched)} properties watched")
        return "; ".join(parts)

    def _runbooks(self) -> Iterator[str]:
        """The alerts' own names, the most urgent first."""
        if self.stuck:
            yield names.STUCK
        if (self._age(self.updating_since) or 0) > _LIMITS.update:
            yield names.PENDING
        if self.flush is not None and not self.stuck:
            yield names.BLOCKED
        yield from (names.violated(p) for p in self.violations if p in NEEDS and p not in self.stuck)
        if len(self.loads) > 1:
            yield names.RANKS_DIFFER
        if self._versions_differ:
            yield names.VERSIONS
        if self._forgotten:
            yield names.PAUSED
        if self.lost:
            yield names.HOOK
        if len({tuple(s.labels[name] for name in INFO_LABELS) for s in self.found.of("info")}) > 1:
            yield names.SPEC
