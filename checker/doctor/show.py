"""A diagnosis for a person: one engine in full, many with a line each."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence

from checker.alerts import names
from checker.alerts.texts import runbook_texts
from checker.clock import utc
from checker.doctor.reading import SEES_LOADS, age
from checker.doctor.results import Diagnosis, State

_LONGEST = 200
_COLUMNS = 110
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
_WIDTH = 12


def clean(text: str) -> str:
    """What an engine said, without what could steer a terminal, and not endless."""
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return printable if len(printable) <= _LONGEST else printable[:_LONGEST] + "…"


def one_line_each(found: Sequence[Diagnosis]) -> Iterator[str]:
    """Many engines."""
    width = max((len(d.url) for d in found), default=0)
    for d in found:
        yield f"{d.url:{width}}  {d.state:11}  {clean(d.summary)}"


def in_full(d: Diagnosis) -> Iterator[str]:
    """One engine: what is known, then what to do."""
    yield f"{d.url}: {d.state}"
    for name, text in _facts(d):
        yield f"  {name:{_WIDTH}}{clean(text)}"
    if d.state == State.HEALTHY.value and d.runbooks == (names.BLOCKED,):
        yield ""
        yield f"Nothing to do now. Should it last: runbook {names.BLOCKED}."
    elif d.runbooks:
        yield from _advice(d.runbooks, d.url)


def _facts(d: Diagnosis) -> Iterator[tuple[str, str]]:
    if not d.monitor:
        yield "why", d.summary
        return
    yield "engine", f"{d.engine}, {d.ranks} rank{'s' if d.ranks != 1 else ''}"
    remedies = ", ".join(d.remedies) or "none"
    yield "watched", f"{len(d.watched)} properties, by {d.monitor}; remedies: {remedies}"
    if d.lost_hooks:
        yield "not seen", f"hooks {', '.join(d.lost_hooks)}"
    yield "paused", _paused(d)
    if d.updating_seconds is not None:
        yield "update", f"being handled for {age(d.updating_seconds)}"
    yield from _flush(d)
    yield "weights", _weights(d)
    if d.violations:
        yield "violated", f"{', '.join(f'{p} {n}' for p, n in d.violations.items())} (since the engine started)"
    for note in d.notes:
        yield "note", note


_SEES_FLUSHES = frozenset({"flush", "deferred_flush", "gate"})
"""The hooks without which nothing is known of flushes, and none would be said to be wanted."""


def _paused(d: Diagnosis) -> str:
    if d.paused_since is None or d.paused_seconds is None:
        return "yes; the engine does not say since when" if d.paused else "no"
    return f"since {utc(d.paused_since)} ({age(d.paused_seconds)})"


def _flush(d: Diagnosis) -> Iterator[tuple[str, str]]:
    flush = d.flush
    if flush is None:
        unseen = sorted(_SEES_FLUSHES & set(d.lost_hooks))
        yield "flush", f"not seen: {', '.join(unseen)} lost" if unseen else "none is wanted"
        return
    for blocker in flush.blockers:
        over = f" over {d.ranks} ranks" if d.ranks > 1 else ""
        entries = f" ({blocker.entries} in flight{over})" if blocker.entries else ""
        since = f" for {age(blocker.seconds)}" if blocker.seconds is not None else ""
        yield "flush", f"wanted; held back by {blocker.name}{entries}{since}"
    yield "can succeed", f"{flush.can_succeed}: {flush.because}"


def _weights(d: Diagnosis) -> str:
    loads = "not seen" if SEES_LOADS in d.lost_hooks else " or ".join(map(str, d.weight_loads)) or "?"
    said = [f"{who} says {', '.join(dict.fromkeys(v))}" for who, v in d.versions.items() if v]
    return "; ".join([f"loads since the start: {loads}", *said])


def _advice(runbooks: Sequence[str], url: str) -> Iterator[str]:
    """The steps of the most urgent runbook, ready to be pasted, and the names of the others."""
    first, *others = runbooks
    yield ""
    yield f"What to do now (runbook {first}):"
    yield f"  ENGINE={shlex.quote(url)}"
    for number, step in enumerate(runbook_texts()[first].now, 1):
        yield from _wrapped(_LINK.sub(r"\1", step.text), f"  {number}. ")
        yield from (f"     {command}" for command in step.commands)
    if others:
        yield f"Then: {', '.join(others)}"


def _wrapped(text: str, mark: str) -> list[str]:
    indent = " " * len(mark)
    return textwrap.wrap(text, _COLUMNS, initial_indent=mark, subsequent_indent=indent, break_long_words=False)
