"""A RESULT.json, checked: its size, its shape, and what its shape alone does not say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from checker.results import SCHEMA, Report, Result, overall
from checker.verdict import Verdict
from spec.errors import QuiesceError

LIMIT = 64 * 1024 * 1024
_VERDICTS = [v.value for v in Verdict]
_NEEDED = ("mode", "storage")


class ResultFileError(QuiesceError):
    """A file that is no answer of `checker verify --json`. Remedy: write one with that command."""

    def __init__(self, path: str, problem: str) -> None:
        """`problem` says what is wrong, and where."""
        super().__init__(f"{path!r}: {problem}\n  write one with: checker verify --json > RESULT.json")


def load(path: str) -> Report:
    """The report in a file; `-` is stdin. Raises ResultFileError."""
    try:
        data = _read(path)
        report = msgspec.json.decode(data, type=Report)
    except (OSError, ValueError) as error:
        raise ResultFileError(path, getattr(error, "strerror", None) or str(error)) from error
    except RecursionError as error:
        raise ResultFileError(path, "nested too deep") from error
    problem = next(_problems(report), None)
    if problem:
        raise ResultFileError(path, problem)
    return report


def _read(path: str) -> bytes:
    if path == "-":
        data = sys.stdin.buffer.read(LIMIT + 1)
    else:
        with Path(path).open("rb") as file:
            data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise ValueError(f"more than {LIMIT // 1024 // 1024} MiB")
    return data


def _problems(report: Report) -> Iterator[str]:
    if report.schema != SCHEMA:
        yield f"schema must be {SCHEMA}, is {report.schema}"
    for number, result in enumerate(report.results):
        yield from (f"results[{number}]{problem}" for problem in _in_result(result))
    if report.verdict not in _VERDICTS:
        yield f"verdict must be one of {', '.join(_VERDICTS)}, is {report.verdict!r}"
    found = overall(report.results, complete=report.complete).value
    if report.verdict != found:
        yield f"verdict is {report.verdict!r}, but by its results it is {found!r}"


def _in_result(result: Result) -> Iterator[str]:
    if result.verdict not in _VERDICTS:
        yield f".verdict must be one of {', '.join(_VERDICTS)}, is {result.verdict!r}"
    yield from (f".configuration.{key} is missing" for key in _NEEDED if key not in result.configuration)
    trace = result.trace
    if trace and trace.loop_from is not None and not 0 <= trace.loop_from <= len(trace.steps):
        yield f".trace.loop_from must be from 0 to {len(trace.steps)}, is {trace.loop_from}"
