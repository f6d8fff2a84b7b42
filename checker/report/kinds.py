"""Which kind of file `checker report` was given, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from checker.record import parsed_record
from checker.report import flight, traces
from checker.report.load import parsed
from checker.report.places import source_of_engine
from checker.report.playback import Playback
from checker.results import Report
from engine_hooks.record import SUFFIX

_HEADER = b'"kind":"header"'


class _Shape(msgspec.Struct):
    """What tells the kinds of JSON apart."""

    states: Any = None
    results: Any = None


def opened(path: str, data: bytes) -> Report | Playback:
    """A report as it is, or the page of a flight record or a trace. Raises QuiesceError."""
    if path.endswith(SUFFIX) or _HEADER in data.split(b"\n", 1)[0].replace(b" ", b""):
        record = parsed_record(Path(path), data)
        return flight.playback(record, source_of_engine(flight.engine_of(record.header)))
    if _is_trace(data):
        trace = traces.read_itf(path, data)
        return traces.playback(path, trace, source_of_engine(traces.engine_of(trace)))
    return parsed(path, data)


def _is_trace(data: bytes) -> bool:
    try:
        shape = msgspec.json.decode(data, type=_Shape)
    except (ValueError, RecursionError):
        return False  # whoever reads it says what is wrong
    return shape.states is not None and shape.results is None
