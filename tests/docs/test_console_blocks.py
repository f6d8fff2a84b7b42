"""Every `console` block of the documentation is run, and prints what it shows."""

import pytest
from doc_blocks import ROOT, Command, ShownFile, follow, pattern, steps

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if any(isinstance(step, Command) for step in steps(path.read_text(encoding="utf-8")))
)


def test_the_pages_that_show_commands():
    assert {f"docs/tutorial/{name}.md" for name in ("founding-case", "new-property", "new-profile")} < set(PAGES)
    assert "README.md" in PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_it_shows(page, tmp_path):
    follow((ROOT / page).read_text(encoding="utf-8"), tmp_path)


def test_steps_of_a_page():
    file, other = '```toml title="a.toml"\nx = 1\n```\n', "```text\n$ no\n```\n"
    text = f"{file}\n```console\n$ cat a.toml\nx = 1\n$ echo \\\n  b\nb\n```\n\n{other}"
    assert list(steps(text)) == [
        ShownFile("a.toml", "x = 1\n"),
        Command(6, "cat a.toml", ["x = 1"]),
        Command(8, "echo \\\n  b", ["b"]),
    ]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("echo one", "two"),
        ("printf 'one\\ntwo\\n'", "one"),
        ("echo one", "one\ntwo"),
        ("echo one; exit 3", "one\nexit code 3"),
        ("echo a.c", "a.d"),
        ("echo one two", "one ... three"),
    ],
)
def test_another_output_is_noticed(command, shown, tmp_path):
    with pytest.raises(AssertionError, match="line 2: "):
        follow(f"```console\n$ {command}\n{shown}\n```\n", tmp_path)


def test_what_may_be_left_out():
    assert pattern(["one", "...", "four"]).fullmatch("one\ntwo\nthree\nfour\n")
    assert pattern(["one", "...", "four"]).fullmatch("one\nfour\n")
    assert pattern(["a ... d"]).fullmatch("a b c d\n")
    assert not pattern(["a ... d"]).fullmatch("a b\nc d\n")
    assert not pattern(["one.five"]).fullmatch("one5five\n")


@pytest.mark.parametrize("block", ["prose\n$ echo one\none", "$ echo one"])
def test_a_block_that_shows_no_output_or_no_command(block):
    with pytest.raises(ValueError, match="line 2: "):
        list(steps(f"```console\n{block}\n```\n"))
