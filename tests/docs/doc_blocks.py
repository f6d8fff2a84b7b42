"""What a reader of the documentation would do: write the files that a page shows, run its commands, compare the output.

In a `console` block a line that begins with `$ ` is a command of bash, and goes on in the next line after a backslash;
what follows is what it prints, both streams together. `...` stands for any text in a line, alone in a line for any
lines. A block with `title="NAME"` is a file.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
BASH = shutil.which("bash") or "bash"
PROMPT, ANYTHING = "$ ", "..."


@dataclass(frozen=True)
class ShownFile:
    """A file that the page shows."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command and what it prints."""

    line: int
    text: str
    printed: list[str] = field(default_factory=list)


def steps(markdown):
    """The files and commands of a page, in its order."""
    for token in MarkdownIt().parse(markdown):
        title = re.search(r'title="([\w.-]+)"', token.info) if token.type == "fence" else None
        if title:
            yield ShownFile(title[1], token.content)
        elif token.type == "fence" and token.info == "console":
            yield from _commands(token.content, token.map[0] + 2)


def _commands(block, first):
    found = []
    for number, line in enumerate(block.splitlines(), first):
        if found and found[-1].text.endswith("\\") and not found[-1].printed:
            found[-1] = replace(found[-1], text=f"{found[-1].text}\n{line}")
        elif line.startswith(PROMPT):
            found.append(Command(number, line.removeprefix(PROMPT)))
        elif found:
            found[-1].printed.append(line)
        else:
            raise ValueError(f"line {number}: a console block begins with a command")
    for command in found:
        if not command.printed:
            raise ValueError(f"line {command.line}: no output is shown; take a `text` block for what is not run")
    return found


def pattern(printed):
    """The expression that the output must match as a whole."""
    parts = [r"(?:.*\n)*" if line == ANYTHING else _line(line) + r"\n" for line in printed]
    return re.compile("".join(parts))


def _line(line):
    return ".*".join(re.escape(part) for part in line.split(ANYTHING))


def follow(markdown, folder):
    """Do all that the page says, in `folder`. Raises AssertionError at the first output that is another."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for step in steps(markdown):
        if isinstance(step, ShownFile):
            (folder / step.name).write_text(step.text, encoding="utf-8")
            continue
        done = subprocess.run(
            [BASH, "-c", step.text],
            cwd=folder,
            env={**os.environ, "PATH": path, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        shown = "\n".join(step.printed)
        assert pattern(step.printed).fullmatch(done.stdout), (
            f"line {step.line}: {step.text}\n--- shown\n{shown}\n--- printed\n{done.stdout}"
        )
