"""Hooks on one object: over a method while it matters, so that no other call pays; and the one that each pass runs."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine_hooks.sglang.probes_session import Session

# Objects of the engine; its modules are not imported here.
Engine = Any
Call = Callable[..., Any]


def around_ingest(session: Session, original: Call) -> Call:
    """What takes the place of `Scheduler.ingest_requests` on a scheduler.

    It runs in each pass, with cold caches, so it is one function that touches little: most passes need no look.
    """
    clock = time.monotonic

    @functools.wraps(original)
    def ingest_requests(*args: object, **kwargs: object) -> object:
        received = original(*args, **kwargs)
        session.sequence += 1
        if clock() >= session.next_look:
            session.guarded("pass", session.ingested, received)
        return received

    return ingest_requests


class OnDemand:
    """The hook lies on the object, over whatever its class has, with what others have hooked there."""

    def __init__(self, owner: Engine, name: str, around: Callable[..., object]) -> None:
        """`around` is called with the method and its arguments."""
        self._owner, self._name, self._around = owner, name, around
        self._before: tuple[Call, ...] = ()
        self._hook: Call | None = None

    def on(self) -> None:
        """Raises AttributeError where there is no such method."""
        if self._hook is not None:
            return
        original, around = getattr(self._owner, self._name), self._around
        own = self._owner.__dict__
        self._before = (own[self._name],) if self._name in own else ()
        self._hook = lambda *args, **kwargs: around(original, *args, **kwargs)
        setattr(self._owner, self._name, self._hook)

    def off(self) -> None:
        """As it was; where somebody has hooked it since, it stays, and is what the next `on` finds."""
        own = self._owner.__dict__
        if self._hook is None or own.get(self._name) is not self._hook:
            return
        self._hook = None
        if self._before:
            own[self._name] = self._before[0]
        else:
            del own[self._name]
