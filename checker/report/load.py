"""A RESULT.json, checked: its size, its shape, and what its shape alone does not say."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from checker.results import SCHEMA, Report, Result, overall
from checker.verdict import Verdict
from spec.errors import QuiesceError

LIMIT = 64 * 1024 * 1024
_VERDICTS = [v.value for v in Verdict]
_NEEDED = ("mode", "storage")
_BYTE = re.compile(r"\(byte (\d+)\)")
Form = TypeVar("Form")


class ResultFileError(QuiesceError):
    """A file that is no answer of `checker verify --json`. Remedy: write one with that command."""

    def __init__(self, path: str, problem: str) -> None:
        """`problem` says what is wrong, and where."""
        super().__init__(f"{path!r}: {problem}\n  write one with: checker verify --json > RESULT.json")


def load(path: str) -> Report:
    """The report in a file; `-` is stdin. Raises ResultFileError."""
    return parsed(path, read(path))


def parsed(path: str, data: bytes) -> Report:
    """The report that was read from a file. Raises ResultFileError."""
    report = decoded(path, data, Report)
    problem = next(_problems(report), None)
    if problem:
        raise ResultFileError(path, problem)
    return report


def read(path: str) -> bytes:
    """What is in a file; `-` is stdin. Raises ResultFileError."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(LIMIT + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(LIMIT + 1)
    except (OSError, ValueError) as error:
        raise ResultFileError(path, getattr(error, "strerror", None) or str(error)) from error
    if len(data) > LIMIT:
        raise ResultFileError(path, f"more than {LIMIT // 1024 // 1024} MiB")
    return data


def decoded(path: str, data: bytes, form: type[Form]) -> Form:
    """JSON of this form. Raises ResultFileError, with the line where the JSON itself is wrong."""
    try:
        return msgspec.json.decode(data, type=form)
    except ValueError as error:
        byte = _BYTE.search(str(error))
        line = f", line {data[: int(byte[1])].count(10) + 1}" if byte else ""
        raise ResultFileError(path, f"{error}{line}") from error
    except RecursionError as error:
        raise ResultFileError(path, "nested too deep") from error


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
