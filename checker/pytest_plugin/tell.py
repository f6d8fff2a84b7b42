"""A violation as a few lines: what, where, since when, what is in flight, what would have had to run, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from checker.clock import utc
from checker.message import Message, parts

if TYPE_CHECKING:
    from checker.pytest_plugin.watch import Seen, Status


def explained(seen: Seen, status: Status) -> str:
    """What a failing test says of one episode."""
    return "\n".join([f"quiesce: {seen.property} does not hold", *_lines(parts(seen.message), seen, status)])


def _lines(said: Message, seen: Seen, status: Status) -> Iterator[str]:
    yield f"  on         {status.name}, {said.place or seen.rank}"
    yield f"  since      {utc(seen.at)}" + (f" ({said.paused})" if said.paused else "")
    yield f"  seen       {said.what}"
    for ledger in said.held:
        yield f"  in flight  {ledger}"
    if said.now:
        yield f"  now        {said.now}"
    loop = f" --loop {said.loop}" if said.loop else ""
    profile = f"{status.engine}-{status.engine_version}"
    yield f"  the story  checker explain {seen.property} --profile {profile}{loop}"
