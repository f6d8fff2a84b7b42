"""Asks many engines at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from checker.doctor.diagnose import diagnose
from checker.doctor.fetch import Limits, ask
from checker.doctor.results import SCHEMA, Diagnosis, Report, State, worst
from spec.errors import QuiesceError

_AT_ONCE = 64


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
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EngineUrlError(f"--urls {file} cannot be read: {error}") from error
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
        raise EngineUrlError(f"{place}: {url!r} is not the base URL of an engine; valid: http://HOST:PORT")
    return url.rstrip("/")


def visit(urls: Sequence[str], limits: Limits) -> Report:
    """Ask every engine, all at once, and put the answers together in the order of `urls`."""
    found = asyncio.run(_all(urls, limits))
    return Report(SCHEMA, worst(State(d.state) for d in found).value, found)


async def _all(urls: Sequence[str], limits: Limits) -> list[Diagnosis]:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(url: str) -> Diagnosis:
        async with turn:
            answers = await ask(url, limits)
        # A hostile answer may take a second to read; the others must not wait for it.
        return await asyncio.to_thread(diagnose, url, answers)

    return list(await asyncio.gather(*(one(url) for url in urls)))
