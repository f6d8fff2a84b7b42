"""The command as a guide: examples that run as they are shown, completion in real shells, what to do next."""

import os
import pty
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest

from checker import completion
from checker.cli import main
from checker.guide import EXAMPLES

PROGRAMS = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "NO_COLOR": "1"}
BASH, ZSH = shutil.which("bash"), shutil.which("zsh")
# What each example ends with. A counterexample is an answer, and nobody listens at the doctor's address.
CODES = {
    "verify --profile sglang-0.5.23 --loop normal --mode retract": 1,
    "verify --profile sglang-0.5.23 --property paused-flush-succeeds": 0,
    "verify --property paused-flush-succeeds --remedy": 0,
    "verify --profile sglang-0.5.23 --loop normal --property no-forward-while-paused": 0,
    "verify --profile sglang-0.5.23 --mode in_place --json": 1,
    "explain paused-flush-succeeds": 1,
    "certify proofs": 0,
    "report RESULT.json": 1,
    "report trace.itf.json": 1,
    "export --itf": 0,
    "export --tla": 0,
    "export --promela": 0,
    "mutate --profile": (0, 1),
    # Where no engine is installed there is nothing to read.
    "extract sglang": (0, 2),
    "verify --profile installed.toml": (1, 2),
    "diff sglang-0.5.23 installed": (0, 2),
    "diff sglang-0.5.23 sglang-0.5.23-limits": 1,
    "replay": 2,
    "reproduce paused-flush-succeeds": 0,
    "doctor --url": 2,
    "rules --into alerts": 0,
    "completion": 0,
}


def help_of(name):
    done = subprocess.run(
        [PROGRAMS / "checker", *([name] if name else []), "--help"],
        capture_output=True, text=True, check=True, env=ENVIRONMENT,
    )  # fmt: skip
    return done.stdout


def in_shell(script, folder):
    return subprocess.run(
        [BASH, "-c", script], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300
    )


def shown(text):
    """The examples below a help text, each with the lines that it goes on in."""
    found = re.search(r"^  Examples?:\n((?:    .*\n)+)", text, re.MULTILINE)
    assert found, text
    return re.sub(r"\\\n\s*", "", textwrap.dedent(found[1])).splitlines()


def expected(example):
    name = example.removeprefix('eval "$(').removeprefix("checker ")
    matching = [prefix for prefix in CODES if name.startswith(prefix)]
    assert matching, f"say what this example ends with: {example}"
    code = CODES[max(matching, key=len)]
    return code if isinstance(code, tuple) else (code,)


def test_every_command_shows_an_example_in_80_columns():
    assert set(EXAMPLES) == set(main.commands)
    for name in ("", *main.commands):
        text = help_of(name)
        assert shown(text)
        assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", ["", *sorted(EXAMPLES)])
def test_the_examples_run_as_they_are_shown(name, tmp_path):
    for example in shown(help_of(name)):
        done = in_shell(example, tmp_path)
        assert done.returncode in expected(example), f"{example}\n{done.stdout}{done.stderr}"


def test_an_example_that_does_not_run_would_be_seen(tmp_path):
    example = shown(help_of("export"))[0].replace("no-stale-kv", "no-stale-kw")
    done = in_shell(example, tmp_path)
    assert done.returncode not in expected(example)


# Typing errors.


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("verfy", "No such command 'verfy'. (Did you mean one of: 'certify', 'verify'?)"),
        ("explian x", "No such command 'explian'. (Did you mean one of: 'explain', 'replay'?)"),
        ("verify --remdy x", "No such option '--remdy'. (Did you mean one of: '--mode', '--remedy', '--seed'?)"),
        ("verify --profile sglang-0.5.32", "unknown profile 'sglang-0.5.32'; did you mean 'sglang-0.5.23'?"),
        (
            "explain paused-flush-suceeds",
            "unknown property 'paused-flush-suceeds'; did you mean 'paused-flush-succeeds'?",
        ),
        ("completion bahs", "'bahs' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_a_typing_error_is_answered_with_the_nearest_name(typed, said):
    command = [PROGRAMS / "checker", *typed.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 2
    assert said in done.stderr


# Completion.

LINES = [
    ("checker ver", {"verify"}),
    ("checker verify --prof", {"--profile"}),
    ("checker verify --profile sglang-0.5.23-li", {"sglang-0.5.23-limits"}),
    ("checker explain paused-", {"paused-controls-succeed", "paused-flush-succeeds", "paused-work-ends"}),
    ("checker verify --profile sglang-0.5.23 --remedy rea", {"reap-while-paused"}),
    ("checker verify --profile sglang-0.5.23 --loop over", {"overlap"}),
    ("checker verify --profile sglang-0.5.23-prefill --loop prefill-o", {"prefill-overlap"}),
    ("checker export --storage fi", {"file"}),
    ("checker completion z", {"zsh"}),
    ("checker verify --profile no-such-profile --loop n", set()),
]


def in_bash(line, folder):
    """What bash would offer, asked of the function that the script registers."""
    script = f"""
    source <("{PROGRAMS}/checker" completion bash)
    complete -p checker
    COMP_WORDS=({line}) COMP_CWORD=$(( {len(line.split())} - 1 ))
    _checker_completion checker
    printf 'offered %s\\n' "${{COMPREPLY[@]}}"
    """
    done = in_shell(script, folder)
    assert "complete -o nosort -F _checker_completion checker" in done.stdout, done.stderr
    assert done.stderr == ""
    return {text.removeprefix("offered ") for text in done.stdout.splitlines() if text.startswith("offered ")} - {""}


@pytest.mark.parametrize(("line", "offered"), LINES)
def test_bash_completes(line, offered, tmp_path):
    assert in_bash(line, tmp_path) == offered


@pytest.mark.skipif(ZSH is None, reason="no zsh; make test installs it")
@pytest.mark.parametrize(("line", "offered"), LINES[:7])
def test_zsh_completes_what_is_typed(line, offered, tmp_path):
    """Typed into a real zsh on a terminal, and Tab pressed: the word on the line becomes what it can be."""
    whole = line.rpartition(" ")[0] + " " + common(offered)
    (tmp_path / ".zshrc").write_text(
        "PS1='ready> '\nautoload -Uz compinit && compinit -u -D\n"
        f'eval "$({PROGRAMS}/checker completion zsh)"\n'
        # Shows the line as it is after the completion, and ends.
        "show() { print -r -- $'\\n'\"line=<$BUFFER>\"; exit }\nzle -N show\nbindkey '^X' show\n",
        encoding="utf-8",
    )
    shown_line = typed_into(["zsh", "-i"], line + "\t\x18", tmp_path)
    assert f"line=<{whole}" in shown_line


def common(offered):
    """How far all of these are alike."""
    first, last = min(offered), max(offered)
    return first[: next((i for i, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1), len(first))]


def typed_into(command, keys, folder):
    """What a program on a terminal prints after these keys."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        own = {"ZDOTDIR": str(folder), "HOME": str(folder), "TERM": "dumb"}
        os.execvpe(command[0], command, {**ENVIRONMENT, **own})  # noqa: S606 - a shell is what is run
    output = b""
    try:
        while b"ready> " not in output:
            output += os.read(terminal, 4096)
        os.write(terminal, keys.encode())
        while chunk := os.read(terminal, 4096):
            output += chunk
    except OSError:  # a terminal whose program has ended
        pass
    finally:
        os.close(terminal)
        os.waitpid(process, 0)
    return output.decode(errors="replace")


def test_a_name_that_cannot_be_looked_up_offers_nothing(monkeypatch):
    monkeypatch.setitem(completion._KNOWN, "loop", lambda _ctx: 1 / 0)
    assert completion.names("loop")(click.Context(main), main.params[0], "n") == []


# What to do next.


def on_a_terminal(*arguments, cwd):
    """stdout as a script would have it, stderr as a person sees it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [PROGRAMS / "checker", *arguments], cwd=cwd, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        os.close(theirs)
        stdout, said = process.communicate(timeout=300)[0], b""
        try:
            while chunk := os.read(ours, 4096):
                said += chunk
        except OSError:  # all of it is read
            pass
    os.close(ours)
    return stdout, said.decode().replace("\r\n", "\n")


def next_of(said):
    return [line.rpartition("\x1b[K")[2].removeprefix("next: ") for line in said.splitlines() if "next: " in line]


FOUNDING = ("--profile", "sglang-0.5.23", "--loop", "normal", "--mode", "retract")


def test_a_refutation_says_what_to_ask_next_and_that_works(tmp_path):
    _stdout, said = on_a_terminal("verify", *FOUNDING, "--property", "paused-flush-succeeds", cwd=tmp_path)
    assert "\x1b[Kverifying sglang-0.5.23 …" in said
    story, _page = next_of(said)
    command = story.removeprefix("the story of one: ")
    assert command == "checker explain paused-flush-succeeds --profile sglang-0.5.23 --loop normal --mode retract"
    stdout, said = on_a_terminal(*command.split()[1:], cwd=tmp_path)
    assert "write_through is reaped by no paused step" in stdout
    repairs, trace = next_of(said)
    assert repairs.startswith("see whether one of these repairs it, with --remedy: reap-while-paused, ")
    export = trace.removeprefix("the same as a trace for other tools: checker ")
    stdout, said = on_a_terminal(*export.split(), "-o", "t.itf.json", cwd=tmp_path)
    assert next_of(said) == ["checker report t.itf.json"]
    stdout, said = on_a_terminal("report", "t.itf.json", cwd=tmp_path)
    assert stdout == "report.html: paused-flush-succeeds is refuted\n"
    assert next_of(said) == ["open report.html in a browser"]


def test_a_proof_points_to_the_second_solver_and_a_script_is_told_nothing(tmp_path):
    arguments = ("verify", *FOUNDING, "--property", "idle-is-true", "--remedy", "reap-while-paused")
    _stdout, said = on_a_terminal(*arguments, cwd=tmp_path)
    assert next_of(said) == ["let a second solver check it: add --certificates FOLDER, then checker certify FOLDER"]
    done = subprocess.run(
        [PROGRAMS / "checker", *arguments], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "next: " not in done.stdout


def test_where_nothing_applies_it_says_what_to_leave_out(tmp_path):
    _stdout, said = on_a_terminal("verify", *FOUNDING, "--property", "ranks-aligned", cwd=tmp_path)
    assert next_of(said) == ["nothing of it applies there; leave out --loop or --mode, or take another --profile"]
