"""A violation's one line, as the monitor says it, in its parts."""

from __future__ import annotations

import re
from dataclasses import dataclass

# The form of engine_hooks.monitor_text.describe.
_LINE = re.compile(
    r"(?P<property>[\w-]+) does not hold(?: on (?P<place>[^,]+, pass \d+ of loop (?P<loop>\S+?)))?"
    r"(?:, (?P<paused>paused for \S+ s))?(?: \((?P<mode>\w+)\))?: (?P<what>.*?)"
    r"(?:; in flight: (?P<held>.*?))?; now: (?P<now>.*)",
    re.DOTALL,
)
# Each ledger ends with what is known of it in brackets, in which there may be semicolons too.
_LEDGERS = re.compile(r"(?<=\)); ")


@dataclass(frozen=True)
class Message:
    """What the line says; what it does not say is empty."""

    what: str
    """What was seen."""
    place: str = ""
    """Rank, pass and loop."""
    loop: str = ""
    paused: str = ""
    """For how long, and the mode."""
    held: tuple[str, ...] = ()
    """Each ledger with entries: how many in which stage, how old, the function that would have to run."""
    now: str = ""
    """What to do."""


def parts(text: str) -> Message:
    """The parts of a line; of another form than the monitor's it is all one part."""
    found = _LINE.fullmatch(text)
    if found is None:
        return Message(text)
    paused = ", ".join(filter(None, (found["paused"], found["mode"] and f"mode {found['mode']}")))
    held = tuple(_LEDGERS.split(found["held"])) if found["held"] else ()
    return Message(found["what"], found["place"] or "", found["loop"] or "", paused, held, found["now"])
