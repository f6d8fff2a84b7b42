"""One engine's answers over HTTP, bounded in time and size. What answers may be anything."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import httpx

METRICS, SERVER, MODEL = "/metrics", "/server_info", "/model_info"
PATHS = (METRICS, SERVER, MODEL)
"""What is asked. Not `/health`: paused, SGLang 0.5.23 answers it after 20 s, with 503."""
LATE = "no whole answer within"
"""How the problem of an answer begins that did not come in time."""
_MEGABYTES = 8
_TOO_MANY = _MEGABYTES * 2**20


@dataclass(frozen=True)
class Limits:
    """How long one engine may take for all its answers (s)."""

    seconds: float = 5.0


@dataclass(frozen=True)
class Answer:
    """One answer, or why there is none."""

    status: int = 0
    """HTTP status; 0 where there was no answer."""
    body: bytes = b""
    problem: str = ""
    """For a person; empty where the answer is whole and its status 200."""
    at: float = 0.0
    """The engine's clock (Unix s) by its `Date` header, else ours."""

    @property
    def reached(self) -> bool:
        """Whether something answered."""
        return self.status != 0


async def ask(url: str, limits: Limits) -> Mapping[str, Answer]:
    """Path to answer, for each of PATHS; never raises for what the other side does."""
    # No proxy from the environment: an engine is inside, where a proxy leads out.
    async with httpx.AsyncClient(timeout=limits.seconds, trust_env=False, verify=_trusted(url)) as client:
        answers = await asyncio.gather(*(_get(client, url + path, limits) for path in PATHS))
    return dict(zip(PATHS, answers, strict=True))


def _trusted(url: str) -> ssl.SSLContext | bool:
    """The authorities of the system, or of SSL_CERT_FILE where it is set. Nothing is verified without TLS."""
    return ssl.create_default_context() if url.lower().startswith("https:") else False


async def _get(client: httpx.AsyncClient, url: str, limits: Limits) -> Answer:
    try:
        async with asyncio.timeout(limits.seconds):
            # Compressed, a small answer could become a huge one.
            async with client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
                return await _read(response)
    except TimeoutError:
        return Answer(problem=f"{LATE} {limits.seconds:g} s")
    # A ValueError: a name that is no host's, or that no encoding of hosts takes.
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError, OSError) as error:
        return Answer(problem=_why(error))


async def _read(response: httpx.Response) -> Answer:
    at = _clock(response.headers.get("date", ""))
    if response.headers.get("content-encoding", "identity") != "identity":
        return Answer(response.status_code, problem="the answer is compressed, which was not asked for", at=at)
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > _TOO_MANY:
            return Answer(response.status_code, problem=f"the answer is larger than {_MEGABYTES} MiB", at=at)
    status = response.status_code
    problem = "" if status == httpx.codes.OK else f"HTTP status {status}"
    return Answer(status, bytes(body), problem, at)


def _clock(date: str) -> float:
    """Ages are by the engine's clock; ours may differ."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return time.time()


def _why(error: Exception) -> str:
    if isinstance(error, httpx.ConnectError):
        return f"no connection: {str(error) or type(error).__name__}"
    if isinstance(error, (httpx.ReadError, httpx.WriteError)):
        return "the connection broke while it was asked; an engine behind TLS needs https://"
    if isinstance(error, httpx.RemoteProtocolError):
        return f"no HTTP: {error}"
    return f"{type(error).__name__}: {error}"
