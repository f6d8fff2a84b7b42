"""A method of one object that is hooked while it matters, so that no other call of it pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Objects of the engine; its modules are not imported here.
Engine = Any
Call = Callable[..., Any]


class OnDemand:
    """The hook lies on the object, over whatever its class has, with what others have hooked there."""

    def __init__(self, owner: Engine, name: str, around: Callable[..., object]) -> None:
        """`around` is called with the method and its arguments."""
        self._owner, self._name, self._around = owner, name, around
        self._before: tuple[Call, ...] = ()
        self._hook: Call | None = None

    def on(self) -> None:
        """Raises AttributeError where there is no such method."""
        original, around = getattr(self._owner, self._name), self._around
        own = self._owner.__dict__
        self._before = (own[self._name],) if self._name in own else ()
        self._hook = lambda *args, **kwargs: around(original, *args, **kwargs)
        setattr(self._owner, self._name, self._hook)

    def off(self) -> None:
        """As it was; where somebody has hooked it since, it stays."""
        own = self._owner.__dict__
        if self._hook is None or own.get(self._name) is not self._hook:
            return
        if self._before:
            own[self._name] = self._before[0]
        else:
            del own[self._name]
