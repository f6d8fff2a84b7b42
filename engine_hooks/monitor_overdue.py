"""What lasts longer than it should: claims that something comes, watched by an age.

No state of an engine shows that something will never come. So what is counted here is that it has not come for longer
than somebody was ready to wait (`QUIESCE_PATIENCE`), while passes went round. Looked at about once a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_hooks.compiled import CompiledProfile
    from engine_hooks.observation import Observation

PATIENCE_SECONDS = 120
"""How long something may last where nothing else is asked for."""
OVERDUE = ("ready-work-retired", "ledgers-drain", "requests-return", "control-answered", "paused-work-ends")
"""The properties that are judged here."""
_READY = "what is ready in {} is not picked up by running passes"
_LOOK_SECONDS = 5.0
"""At most so much of the time since the last look counts: a loop that stood still retires nothing, and is no fault."""


class _Lasting:
    """How long each of some values has been the same."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float, float]] = {}

    def seconds(self, name: str, value: float | None, now: float) -> float:
        """For how long `name` has had this value; 0 where it is new, or None."""
        if value is None:
            self._known.pop(name, None)
            return 0.0
        same, age, last = self._known.get(name, (None, 0.0, now))
        age = age + min(now - last, _LOOK_SECONDS) if same == value else 0.0
        self._known[name] = (value, age, now)
        return age

    def forget(self) -> None:
        """Nothing has lasted."""
        self._known.clear()


class Overdue:
    """Judges what one rank's observations show to last. As large as the profile has ledgers."""

    def __init__(self, profile: CompiledProfile, patience: float) -> None:
        self._profile = profile
        self._patience = patience
        self._lasting = _Lasting()
        self._lookups: int | None = None

    def forget(self) -> None:
        """The engine resumes: what a pause kept may take its time again."""
        self._lasting.forget()

    def judge(self, seen: Observation, now: float) -> Iterator[tuple[str, str]]:
        """Each property of OVERDUE with what is wrong, or nothing. `now`: monotonic (s)."""
        running = not seen.paused
        ready = {name: seen.ready_since.get(name) if running else None for name in self._profile.ledgers}
        told = [self._late(f"ready {name}", since, now, _READY.format(name)) for name, since in ready.items()]
        yield "ready-work-retired", "; ".join(filter(None, told))
        told = [
            self._late(f"entry {name}", seen.oldest.get(name), now, f"an entry of {name} is in flight")
            for name in self._profile.ledgers
        ]
        yield "ledgers-drain", "; ".join(filter(None, told))
        wanting = running and (seen.running or seen.waiting)
        what = f"{seen.running} running and {seen.waiting} waiting requests, and no batch is launched"
        yield "requests-return", self._late("forwards", seen.forwards if wanting else None, now, what)
        until = seen.deferred_until
        late = until if until is not None and now > until else None
        what = "a flush with a time-out is not answered, its time being out"
        yield "control-answered", self._late("deferred", late, now, what)

        yield "paused-work-ends", self._started_late(seen, now)

    def _started_late(self, seen: Observation, now: float) -> str:
        """Lookups since the last look, where the engine was paused long before."""
        before, self._lookups = self._lookups, seen.lookups
        age = self._lasting.seconds("pause", 1.0 if seen.paused else None, now)
        if age <= self._patience or before is None or seen.lookups <= before:
            return ""
        return f"{seen.lookups - before} storage lookups were started {age:.0f} s into the pause"

    def _late(self, name: str, value: float | None, now: float, what: str) -> str:
        age = self._lasting.seconds(name, value, now)
        return f"{what} for {age:.0f} s" if age > self._patience else ""
