"""Asks many engines at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar
from urllib.parse import urlsplit

from checker.doctor.diagnose import diagnose
from checker.doctor.fetch import Limits, ask
from checker.doctor.results import SCHEMA, Diagnosis, Report, State, worst
from spec.errors import QuiesceError

_AT_ONCE = 64
_MOST_BYTES = 2**20
"""Of a file of URLs: tens of thousands of engines."""
_LONGEST_SHOWN = 100
_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Threads(ThreadPoolExecutor):
    """A thread of its own for each call, waited for by nobody.

    Names of hosts are looked up in threads that cannot be stopped. In a pool a few names that hang would hold up all
    other engines, and the end of the process.
    """

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        future: Future[_T] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the future
                future.set_exception(error)

        if future.set_running_or_notify_cancel():
            threading.Thread(target=work, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as in the base class
        """Nothing to wait for."""


class EngineUrlError(QuiesceError):
    """A URL that is none of an engine. Remedy: `http://HOST:PORT`."""


def engine_urls(given: Sequence[str], file: str | None) -> list[str]:
    """The base URLs, each once, in order. Raises EngineUrlError.

    Args:
        given: the values of `--url`.
        file: a file with one URL a line, `#` before a comment; or None.
    """
    found = [_base(url, f"--url {url}") for url in given]
    if file is not None:
        found += _from_file(file)
    if not found:
        raise EngineUrlError("no engine to ask; give --url http://HOST:PORT, or --urls FILE with one URL a line")
    return list(dict.fromkeys(found))


def _from_file(file: str) -> list[str]:
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        lines = content.decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise EngineUrlError(f"--urls {file} cannot be read: {error}") from error
    if len(content) > _MOST_BYTES:
        raise EngineUrlError(f"--urls {file} is larger than {_MOST_BYTES} bytes; give a file with one URL a line")
    texts = [line.partition("#")[0].strip() for line in lines]
    return [_base(text, f"{file}:{number}") for number, text in enumerate(texts, 1) if text]


def _base(url: str, place: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        _ = parts.port  # a ValueError where it is no port
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment:
        shown = repr(url if len(url) <= _LONGEST_SHOWN else url[:_LONGEST_SHOWN] + "…")
        raise EngineUrlError(f"{place}: {shown} is not the base URL of an engine; valid: http://HOST:PORT")
    return url.rstrip("/")


def visit(urls: Sequence[str], limits: Limits) -> Report:
    """Ask every engine, all at once, and put the answers together in the order of `urls`."""
    found = asyncio.run(_all(urls, limits))
    return Report(SCHEMA, worst(State(d.state) for d in found).value, found)


async def _all(urls: Sequence[str], limits: Limits) -> list[Diagnosis]:
    asyncio.get_running_loop().set_default_executor(_Threads())
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(url: str) -> Diagnosis:
        async with turn:
            answers = await ask(url, limits)
        # A hostile answer may take a second to read; the others must not wait for it.
        return await asyncio.to_thread(diagnose, url, answers)

    return list(await asyncio.gather(*(one(url) for url in urls)))
