"""What answers may be anything: each wrong answer is one clear line, in time, and never healthy."""

from __future__ import annotations

import asyncio
import gzip
import re
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest
from engines import NOW, SGLANG, Page, blocked, engine, exported, idle, listening, model_info, served, server_info

from checker.doctor.diagnose import diagnose
from checker.doctor.fetch import SERVER, Limits, ask
from checker.doctor.results import Diagnosis
from checker.doctor.show import in_full, one_line_each
from checker.doctor.visit import visit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEALTHY = exported(idle)
SECONDS = 1.0
OPENSSL = shutil.which("openssl") or ""
OK = b"HTTP/1.1 200 OK\r\n"


def asked(url: str) -> Diagnosis:
    (found,) = visit([url], Limits(SECONDS)).engines
    return found


def with_metrics(body: bytes, **more: object) -> Diagnosis:
    with served(engine(HEALTHY) | {"/metrics": Page(body, **more)}) as url:  # type: ignore[arg-type]
        return asked(url)


def changed(old: bytes, new: bytes) -> bytes:
    assert HEALTHY.count(old) >= 1
    return HEALTHY.replace(old, new)


def test_the_unchanged_answer_is_healthy() -> None:
    assert with_metrics(HEALTHY).state == "healthy"


STUCK = b'quiesce_stuck{dp_rank="0",pp_rank="0",property="paused-flush-succeeds",tp_rank="0"} 0.0'
NEGATIVE = b'quiesce_weight_epoch{dp_rank="0",pp_rank="0",tp_rank="9"} -3\n'
WRONG: dict[str, tuple[bytes, str]] = {
    "not text": (b"\x89PNG\r\n\x1a\n\xff\xfe", "/metrics is not text (byte 0 is not UTF-8)"),
    "wrong type": (
        changed(b"# TYPE quiesce_stuck gauge", b"# TYPE quiesce_stuck counter"),
        "quiesce_stuck is a counter there, not a gauge",
    ),
    "wrong type of a counter": (
        changed(b"# TYPE quiesce_violations_total counter", b"# TYPE quiesce_violations_total histogram"),
        "quiesce_violations_total is a histogram there, not a counter",
    ),
    "a flag of 7": (changed(STUCK, STUCK[:-3] + b"7.0"), "quiesce_stuck is 7, not 0 or 1"),
    "not a number": (changed(STUCK, STUCK[:-3] + b"NaN"), "quiesce_stuck is nan, not a number"),
    "endless": (changed(STUCK, STUCK[:-3] + b"+Inf"), "quiesce_stuck is inf, not a number"),
    "huge": (changed(STUCK, STUCK + b"\n" + NEGATIVE.replace(b"-3", b"1e300")), "which is no count and no time"),
    "negative": (
        changed(b"# TYPE quiesce_weight_epoch gauge\n", b"# TYPE quiesce_weight_epoch gauge\n" + NEGATIVE),
        "quiesce_weight_epoch is -3, which is negative",
    ),
    "a word for a value": (changed(STUCK, STUCK[:-3] + b"many"), "/metrics cannot be parsed"),
    "a label is missing": (
        changed(STUCK, b"quiesce_stuck 1.0"),
        "quiesce_stuck lacks the labels dp_rank, pp_rank, property, tp_rank",
    ),
    "twice with other values": (
        changed(STUCK, STUCK + b"\n" + STUCK[:-3] + b"1.0"),
        "quiesce_stuck twice with the same labels; which one holds is not known",
    ),
    "a brace is missing": (changed(STUCK, b'quiesce_stuck{dp_rank="0" 1.0'), "/metrics cannot be parsed"),
    "a long line": (
        changed(STUCK, b'quiesce_stuck{x="' + b"y" * 9000 + b'"} 1'),
        "/metrics has a line of 9021 characters",
    ),
    "many series": (b'quiesce_info{a="b"} 1\n' * 20_001, "/metrics has 20001 series of ours"),
    "much text": ((b'quiesce_info{a="' + b"b" * 2000 + b'"} 1\n') * 2100, "more than 4194304 characters"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_metrics_that_no_engine_exports(name: str) -> None:
    body, says = WRONG[name]
    found = with_metrics(body)
    assert found.state == "unreachable"
    assert says in found.summary


def test_a_later_version_may_export_more() -> None:
    more = HEALTHY + b'# TYPE quiesce_moons gauge\nquiesce_moons{planet="mars"} 2.0\n'
    assert with_metrics(more.replace(b'tp_rank="0"', b'tp_rank="0",zone="a"')).state == "healthy"


@pytest.mark.parametrize("name", ["hook_applied", "stuck", "paused", "violations_total"])
def test_a_series_that_is_missing_is_not_taken_for_silence(name: str) -> None:
    lines = HEALTHY.decode().splitlines(keepends=True)
    found = with_metrics("".join(line for line in lines if not line.startswith(f"quiesce_{name}{{")).encode())
    assert found.state == "cannot tell"
    assert found.summary == f"Quiesce runs there, but its answer lacks quiesce_{name}"


def test_a_web_page_is_not_an_engine() -> None:
    with served({"/metrics": Page(b"<html>welcome</html>"), "/server_info": Page(b"<html>")}) as url:
        found = asked(url)
    assert found.state == "unreachable"
    assert found.summary == "not an engine: /metrics has no series of SGLang and none of Quiesce"


@pytest.mark.parametrize(
    ("status", "headers"), [(302, {"Location": "http://127.0.0.1:1/"}), (401, {}), (500, {}), (404, {})]
)
def test_a_status_that_is_not_200(status: int, headers: dict[str, str]) -> None:
    with served({"/metrics": Page(b"", status, headers)}) as url:
        found = asked(url)
    assert (found.state, found.summary) == ("unreachable", f"/metrics: HTTP status {status}")


def test_what_an_answer_is_called_does_not_matter() -> None:
    assert with_metrics(HEALTHY, headers={"Content-Type": "application/json"}).state == "healthy"
    assert with_metrics(HEALTHY, headers={"Content-Type": "\xff"}).state == "healthy"


def test_a_compressed_answer_that_does_not_say_so_is_not_text() -> None:
    found = with_metrics(gzip.compress(HEALTHY))
    assert (found.state, found.summary.partition(": ")[2]) == (
        "unreachable",
        "/metrics is not text (byte 1 is not UTF-8)",
    )


def test_a_compressed_answer_is_not_unpacked() -> None:
    found = with_metrics(gzip.compress(b"\0" * 10**7), headers={"Content-Encoding": "gzip"})
    assert found.state == "cannot tell"
    assert "compressed, which was not asked for" in found.summary


def test_an_engine_without_metrics_is_told_apart_from_no_engine() -> None:
    with served({"/server_info": server_info("default"), "/model_info": model_info("default")}) as url:
        found = asked(url)
    assert found.state == "cannot tell"
    assert found.summary == "sglang 0.5.23 without /metrics (HTTP status 404); start it with --enable-metrics"
    assert list(found.runbooks) == ["QuiesceMonitorAbsent"]


def test_an_engine_without_quiesce() -> None:
    found = with_metrics(SGLANG)
    assert (found.state, found.summary) == ("cannot tell", "sglang 0.5.23 without Quiesce; nothing is watched")


def endless(connection: socket.socket, stop: threading.Event) -> None:
    connection.sendall(OK + b"\r\n")
    while not stop.is_set():
        connection.sendall(b"x" * 2**16)


def drip(start: bytes, part: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def talk(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(start)
        while not stop.wait(0.1):
            connection.sendall(part)

    return talk


def reset(connection: socket.socket, _stop: threading.Event) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


TALKS: dict[str, tuple[Callable[[socket.socket, threading.Event], object], str]] = {
    "an endless body": (endless, "/metrics: "),
    "a body that drips": (drip(OK + b"\r\n", b"x"), "/metrics: no whole answer within 1 s"),
    "headers that drip": (drip(OK, b"A: b\r\n"), "/metrics: no whole answer within 1 s"),
    "silence": (lambda _, stop: stop.wait(), "/metrics: no whole answer within 1 s"),
    "another protocol": (lambda c, _: c.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), "/metrics: no HTTP: "),
    "a closed connection": (lambda c, _: c.close(), "/metrics: no HTTP: "),
    "a connection that is reset": (reset, "/metrics: the connection broke while it was asked; an engine behind TLS"),
    "half a body": (lambda c, _: c.sendall(OK + b"Content-Length: 100\r\n\r\nabc"), "/metrics: no HTTP: "),
    "endless headers": (drip(OK, b"A: " + b"b" * 60_000 + b"\r\n"), "/metrics: no HTTP: "),
}  # fmt: skip


@pytest.mark.parametrize("name", TALKS)
@pytest.mark.timeout(20)
def test_a_server_that_does_not_end_or_speaks_no_http(name: str) -> None:
    talk, says = TALKS[name]
    with listening(talk) as url:
        found = asked(url)
    assert found.state == "unreachable"
    assert found.summary.startswith(says)


def test_an_answer_is_read_up_to_8_mib() -> None:
    comment = b"# a comment\n" * (8 * 2**20 // 12 - len(HEALTHY))
    assert with_metrics(HEALTHY + comment).state == "healthy"
    found = with_metrics(HEALTHY + b"#" * 8 * 2**20)
    assert found.state == "cannot tell"
    assert "larger than 8 MiB" in found.summary


def test_nobody_listens() -> None:
    with listening(lambda *_: None) as url:
        pass
    found = asked(url)
    assert found.state == "unreachable"
    assert found.summary.startswith("/metrics: no connection: ")


def test_tls_to_an_engine_without_it() -> None:
    with served(engine(HEALTHY)) as url:
        found = asked(url.replace("http://", "https://"))
    assert found.state == "unreachable"
    assert re.match(r"/metrics: no connection: .*SSL", found.summary)


@pytest.mark.skipif(not OPENSSL, reason="it makes the certificate")
def test_tls_with_an_authority_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
    made = ["-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=engine"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([OPENSSL, "req", "-x509", "-newkey", "rsa:2048", *made, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with served(engine(HEALTHY), context) as url:
        found = asked(url)
        assert found.state == "unreachable"
        assert "CERTIFICATE_VERIFY_FAILED" in found.summary
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        assert asked(url).state == "healthy"


@pytest.mark.parametrize(
    "host", ["a" * 70, "a..b", "xn--" + "9" * 30, "ü" * 300, "[::1%25nowhere]"], ids=["long", "dots", "xn", "ü", "zone"]
)
def test_a_name_that_is_no_hosts(host: str) -> None:
    found = asked(f"http://{host}:1")
    assert found.state == "unreachable"
    assert found.summary.startswith("/metrics: ")


@pytest.mark.timeout(60)
def test_names_that_are_looked_up_without_end_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, real = threading.Event(), socket.getaddrinfo

    def lookup(host: object, *more: Any, **options: Any) -> object:
        if b"slow" in (host if isinstance(host, bytes) else str(host).encode()):
            answered.wait()
        return real(host, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    try:
        with served(engine(HEALTHY)) as url:
            slow = [f"http://slow-{number}.invalid:1" for number in range(40)]
            states = [d.state for d in visit([*slow, url], Limits(10)).engines]
        assert states == ["unreachable"] * 40 + ["healthy"]
        assert not answered.is_set()
    finally:
        answered.set()


@pytest.mark.timeout(60)
def test_fifty_engines_of_which_some_hang() -> None:
    pages = {f"/e{number}{path}": page for number in range(40) for path, page in engine(HEALTHY).items()}
    with listening(lambda _, stop: stop.wait()) as hung, served(pages) as url:
        urls = [f"{hung if number % 5 == 0 else url}/e{number * 4 // 5}" for number in range(50)]
        found = visit(urls, Limits(10)).engines
    assert [d.url for d in found] == urls
    assert [d.state for d in found] == ["unreachable" if number % 5 == 0 else "healthy" for number in range(50)]
    assert {d.summary for d in found if d.state == "unreachable"} == {"/metrics: no whole answer within 10 s"}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"version": 7}', b'{"version": "1", "internal_states": {}}', b"[" * 100_000, b"\xff\xfe"],
    ids=["empty", "list", "cut off", "number", "no list", "deep", "bytes"],
)
def test_strange_server_info_is_a_note(body: bytes) -> None:
    with served(engine(HEALTHY) | {"/server_info": Page(body)}) as url:
        found = asked(url)
    assert found.state == "healthy"
    assert len(found.notes) == 1
    assert found.notes[0].startswith("/server_info: not what SGLang answers")


def test_schedulers_that_do_not_answer_are_not_called_healthy() -> None:
    with listening(lambda _, stop: stop.wait()) as hung, served(engine(HEALTHY)) as url:
        answers = dict(asyncio.run(ask(url, Limits(SECONDS))))
        answers[SERVER] = asyncio.run(ask(hung, Limits(0.2)))[SERVER]
        found = diagnose(url, answers)
    assert found.state == "cannot tell"
    assert found.summary == "running; its schedulers do not answer"


def test_what_an_engine_says_cannot_steer_a_terminal() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07" + "x" * 500
    body = exported(blocked, info=("0123456789abcdef", "0.1.0", "sglang", evil))
    with served(engine(body)) as url:
        found = asked(url)
    text = "\n".join([*in_full(found), *one_line_each([found])])
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "?[2J?]0;owned?" in text
    assert max(len(line) for line in text.splitlines() if "curl" not in line) < 320


def test_a_clock_that_makes_no_sense_is_replaced_by_ours() -> None:
    pages = engine(exported(blocked))
    with served(pages | {"/metrics": Page(pages["/metrics"].body, headers={"Date": "yesterday"})}) as url:
        found = asked(url)
    assert found.paused_since == NOW - 200
    assert found.paused_seconds is not None
    assert found.paused_seconds >= 0


def test_a_time_in_the_future_is_no_age() -> None:
    body = exported(lambda sink: sink.gauge("pause_start_timestamp_seconds", ("scheduler",), 1.8e11))
    with served(engine(body)) as url:
        found = asked(url)
    assert found.paused_seconds == 0
    assert "  paused      since 7673-12-21 08:00:00 UTC (0 s)" in list(in_full(found))
