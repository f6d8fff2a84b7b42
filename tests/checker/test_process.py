"""The command as a process: Ctrl-C at any time; streams that are closed, full or no longer read; what they show."""

import hashlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import msgspec
import pytest

from checker.manifest import ClaimEntry, Manifest

CHECKER = [sys.executable, "-m", "checker"]
P = ["--profile", "sglang-0.5.23"]
SMALL = [*P, "--loop", "normal", "--mode", "retract", "--property", "paused-flush-succeeds"]
ROOT = Path(__file__).resolve().parents[2]
# Interrupts itself as soon as the import of a module begins.
INTERRUPTED = """
import os, signal, sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
sys.argv[1:] = {arguments!r}
from checker.__main__ import main
main()
"""
# Interrupts itself in the first search for a proof or a counterexample.
SEARCHING = """
import os, signal, sys
sys.argv[1:] = {arguments!r}
import checker.workbench
def decide(*_):
    os.kill(os.getpid(), signal.SIGINT)
checker.workbench.decide_part = decide
from checker.__main__ import main
main()
"""
# Interrupts itself when everything was told, and Python takes its modules apart.
LATE = """
import os, signal, sys
sys.argv[1:] = ["--version"]
class Last:
    def __del__(self, os=os, signal=signal):
        os.kill(os.getpid(), signal.SIGINT)
        os.write(2, b"late\\n")
last = Last()
from checker.__main__ import main
main()
"""
# Loses its workers once the first of them has handed something over.
LOSING = """
import sys
sys.argv[1:] = {arguments!r}
from checker import workers
plain = workers.results
def results(*given):
    yield next(plain(*given))
    raise workers.WorkerLostError("a worker ended with exit code -9 before its work did")
workers.results = results
from checker.__main__ import main
main()
"""
INTERRUPT = "checker: interrupted\n"
NO_SPACE = "checker: stdout cannot be written: No space left on device\n"
CLOSED = "checker: stdout cannot be written: it is closed\n"


def shell(line, *arguments):
    """Run a line of bash in which `checker` is the command and `$@` are these arguments."""
    line = f'checker() {{ {" ".join(CHECKER)} "$@"; }}; {line}'
    command = ["bash", "-c", line, "bash", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)


def started(*arguments):
    """The command as the leader of a group, as a shell starts it at a terminal."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*CHECKER, *arguments], stdout=pipe, stderr=pipe, text=True, cwd=ROOT, start_new_session=True
    )


def children(process):
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8")
    return [Path(f"/proc/{child}") for child in found.split()]


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_the_command_starts_where_interrupts_and_streams_are_looked_after():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"]["checker"] == "checker.__main__:main"


@pytest.fixture
def certificate(tmp_path):
    """One obligation, and it holds."""
    text = "(set-logic QF_LIA)\n(push 1)\n(assert false)\n(check-sat)\n(pop 1)\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    claim = ClaimEntry("000.smt2", digest, "", "induction", ["1: false"], [], [], [])
    manifest = Manifest(1, "p", "mine", "d", [], "normal", {}, {}, "z3", 0, [claim])
    folder = tmp_path / "certificate"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    (folder / "000.smt2").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("checker.streams", ["--help"]),
        ("click", ["--help"]),
        ("spec.profile", ["--help"]),
        ("msgspec", ["explain", "no-stale-kv", *P]),
        ("z3", ["explain", "no-stale-kv", *P]),
        ("z3", ["verify", *P]),
    ],
)
def test_an_interrupt_during_the_imports(module, arguments):
    code = INTERRUPTED.format(module=module, arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", INTERRUPT)


def test_an_interrupt_while_python_ends_changes_no_exit_code():
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "late\n")
    assert done.stdout.startswith("checker, version ")


def test_interrupts_that_were_ignored_at_the_start_stay_ignored():
    code = INTERRUPTED.format(module="click", arguments=["--version"])
    done = shell('trap "" INT; "$@"', sys.executable, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("checker, version ")


@pytest.mark.parametrize("delay", [0, 0.02, 0.1])
@pytest.mark.parametrize("arguments", [("explain", "no-stale-kv", "--anew"), ("verify", "--anew")])
def test_an_interrupt_while_workers_prove(arguments, delay):
    # No configuration is decided whole by then, so there is nothing that `verify` could say.
    process = started(*arguments, *P)
    wait_for(lambda: children(process))
    workers = children(process)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (3, "", INTERRUPT)
    wait_for(lambda: not any(worker.exists() for worker in workers))


def test_what_is_decided_before_a_worker_is_lost_is_said(tmp_path):
    junit = tmp_path / "junit.xml"
    code = LOSING.format(arguments=["verify", *P, "--json", "--workers", "2", "--junit", str(junit)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (4, "checker: a worker ended with exit code -9 before its work did\n")
    report = json.loads(done.stdout)
    assert not report["complete"]
    assert report["results"]
    assert junit.exists()


def never_written(certificate):
    """Who reads its script waits without end."""
    (certificate / "000.smt2").unlink()
    os.mkfifo(certificate / "000.smt2")


def certifying_without_end(certificate):
    """The command, and the process of the second solver."""
    never_written(certificate)
    process = started("certify", str(certificate))
    wait_for(lambda: children(process))
    (child,) = children(process)
    return process, child


@pytest.mark.parametrize("delay", [0, 0.02, 0.5])
def test_an_interrupt_while_certify_checks(certificate, delay):
    process, child = certifying_without_end(certificate)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (3, "", INTERRUPT)
    assert not child.exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_second_solver_ends_with_the_command(certificate, how):
    process, child = certifying_without_end(certificate)
    time.sleep(0.5)
    process.send_signal(how)
    process.wait(30)
    wait_for(lambda: not child.exists())


def test_a_second_solver_that_is_killed_is_said(certificate):
    process, child = certifying_without_end(certificate)
    os.kill(int(child.name), signal.SIGKILL)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (4, "")
    assert err == "checker: the process that asks cvc5 ended with exit code -9 before its work did\n"


def test_what_certify_has_checked_before_an_interrupt_is_said(certificate, tmp_path):
    waiting = tmp_path / "waiting"
    shutil.copytree(certificate, waiting)
    never_written(waiting)
    process = started("certify", str(certificate), str(waiting))
    assert process.stdout.readline() == "certificate: 1 obligations, all unsat\n"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (3, "", INTERRUPT)


@pytest.mark.parametrize("written", ["tla", "promela", "itf"])
def test_an_interrupt_while_export_works_leaves_the_file_as_it_was(tmp_path, written):
    output = tmp_path / "output"
    output.write_text("as it was", encoding="utf-8")
    arguments = ["export", f"--{written}", *SMALL, "-o", str(output)]
    code = INTERRUPTED.format(module=f"checker.export.{written}", arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", INTERRUPT)
    assert output.read_text(encoding="utf-8") == "as it was"


def test_an_interrupt_while_export_searches(tmp_path):
    output = tmp_path / "trace.json"
    code = SEARCHING.format(arguments=["export", "--itf", *SMALL, "-o", str(output)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", INTERRUPT)
    assert not output.exists()


@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ("checker --help >&-", 2, CLOSED),
        ("checker --help >/dev/full", 2, NO_SPACE),
        ("checker --help >&- 2>&-", 2, ""),
        ("checker --help >/dev/full 2>&1", 2, ""),
        ("checker --help 2>&- >/dev/null", 0, ""),
        ("checker --help 2>&- <&- >/dev/null", 0, ""),
        ("{ sleep 0.3; checker --help; } | true; exit ${PIPESTATUS[0]}", 3, ""),
        ("checker verify --profile x 2>&-", 2, ""),
        ("checker verify --profile x 2>/dev/full", 2, ""),
        ("{ sleep 0.3; checker verify --profile x; } 2>&1 | true; exit ${PIPESTATUS[0]}", 2, ""),
        ('checker verify "$@" >/dev/full', 2, NO_SPACE),
        ('checker verify "$@" --json >/dev/full', 2, NO_SPACE),
        ('checker verify "$@" 2>&- >/dev/null', 1, ""),
        ('checker verify "$@" 2>/dev/full >/dev/null', 1, ""),
        ('checker verify "$@" <&- 2>&- >/dev/null', 1, ""),
        ('checker verify "$@" | true; exit ${PIPESTATUS[0]}', 3, ""),
    ],
)
def test_streams(line, code, err):
    done = shell(line, *SMALL)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", err)


@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ('checker certify "$@" >/dev/null', 0, ""),
        ('checker certify "$@" 2>&- >/dev/null', 0, ""),
        ('checker certify "$@" >/dev/full', 2, NO_SPACE),
        ('checker certify "$@" >&-', 2, CLOSED),
        ('{ sleep 0.3; checker certify "$@"; } | true; exit ${PIPESTATUS[0]}', 3, ""),
        ('rm "$1/000.smt2"; checker certify "$@" 2>&-', 2, ""),
        ('rm "$1/000.smt2"; checker certify "$@" 2>/dev/full', 2, ""),
    ],
)
def test_streams_of_certify(certificate, line, code, err):
    done = shell(line, str(certificate))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", err)


def test_a_certificate_that_cannot_be_written(tmp_path):
    # A limit on the size of files stands for a full disk.
    done = shell('ulimit -f 1; checker verify "$@"', *SMALL, "--remedy", "all", "--certificates", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"checker: {tmp_path}/paused-flush-succeeds-normal-retract-")
    assert ": the certificate cannot be written: [Errno 27] File too large" in done.stderr
    assert done.stderr.count("\n") == 1


def at_a_terminal(*arguments):
    """What the command writes to a terminal, both streams."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen([*CHECKER, *arguments], stdout=terminal, stderr=terminal, cwd=ROOT)
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(controller, 65536):
            shown += part
    except OSError:
        pass  # all of its ends are closed
    os.close(controller)
    process.wait(timeout=60)
    return shown.decode()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["\x1b[31mred"], r"'\x1b[31mred'"),
        (["verify", "\x1b[31mred"], r"(\x1b[31mred)"),
        (["verify", "--\x1b[31mred"], r"--\x1b[31mred"),
        (["verify", "--seed", "\x1b]0;title\x07"], r"\x1b]0;title\x07"),
        (["verify", "--profile", "\x9b31m"], r"'\x9b31m'"),
        (["verify", "--profile", "\x1b[31m.toml"], r"\x1b[31m.toml: cannot be read"),
        (["verify", *P, "--property", "\x1b[31m"], r"'\x1b[31m'"),
        (["explain", "\x1b[31m", *P], r"'\x1b[31m'"),
        (["certify", "\x1b[31m"], r"no certificate in \x1b[31m;"),
    ],
)
def test_control_characters_of_the_command_line_are_shown_escaped(arguments, says):
    shown = at_a_terminal(*arguments)
    assert says in shown
    assert "\x1b" not in shown.replace("\r\x1b[K", "")
    assert "\x9b" not in shown


@pytest.mark.parametrize(
    ("difference", "says"),
    [
        ('[set.loops."\\u001b[31m"]\nsource = 1', r":5: loops.\x1b[31m.source: must be str"),
        ('[set.loops."a\\nb"]\nsource = 1', r":5: loops.a\nb.source: must be str"),
        ('[set.loops."\\u202e"]\nsource = 1', r":5: loops.\u202e.source: must be str"),
        ('[set.loops.normal]\npaused = ["\\u001b[31m"]', r":5: loops.normal.paused: unknown name '\x1b[31m'"),
    ],
)
def test_control_characters_of_a_profile_are_shown_escaped(tmp_path, difference, says):
    path = tmp_path / "mine.toml"
    path.write_text(f'schema = 1\nbase = "sglang-0.5.23"\n\n{difference}\n', encoding="utf-8")
    done = shell('checker verify --profile "$1"', str(path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"checker: {path}{says}")
    assert done.stderr.count("\n") == 1


def test_valid_names_of_a_profile_are_shown_escaped(tmp_path):
    path = tmp_path / "mine.toml"
    text = 'schema = 1\nbase = "sglang-0.5.23"\n[set.remedies."\\u001b[31m"]\nsummary = ""\nhook = ""\nset = {}\n'
    path.write_text(text, encoding="utf-8")
    done = shell('checker verify --profile "$1" --remedy x', str(path))
    assert done.returncode == 2
    assert done.stderr.startswith("checker: unknown remedy 'x'\n  valid names: \\x1b[31m, abort-reaches-all, all, ")


def test_a_name_in_the_result_is_shown_escaped_and_whole_in_the_json(tmp_path):
    path = tmp_path / "a\x1b[31m\x7f\x9bé.toml"
    path.write_text('schema = 1\nbase = "sglang-0.5.23"\n', encoding="utf-8")
    arguments = ["--profile", str(path), *SMALL[2:]]
    done = shell('checker verify "$@"', *arguments)
    assert done.stdout.startswith("sglang 0.5.23, profile a\\x1b[31m\\x7f\\x9bé (file), remedies: none\n")
    done = shell('checker verify --json "$@"', *arguments)
    assert json.loads(done.stdout)["engine"]["profile"] == "a\x1b[31m\x7f\x9bé"


def test_what_the_command_itself_says_with_control_characters_still_works():
    shown = at_a_terminal("verify", *SMALL)
    assert "\r\x1b[K1 results of 2 configurations; paused-flush-succeeds: refuted" in shown
    assert "\x1b[31mREFUTED\x1b[0m" in shown
