"""The site builds without a warning, loads nothing from elsewhere, and every link in it leads somewhere."""

import os
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from doc_blocks import ROOT
from markdown_it import MarkdownIt

ROOT_PAGES = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "deploy/README.md",
    "bench/README.md",
]
OURS = ("bench", "checker", "deploy", "docs", "engine_hooks", "spec", "tests", "tools")
# What a browser fetches without being asked, by tag; an <a> is followed by a person.
FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
    "link": "href",
}
NAMED_ONLY = {"canonical", "next", "prev"}


def build(root: Path, into: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(into)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


class Page(HTMLParser):
    """Ids, links and what is fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := given.get(key))}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        target = given.get(FETCHED.get(tag, ""))
        if target and given.get("rel") not in NAMED_ONLY:
            self.fetched.append(target)


@cache
def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def elsewhere(link: str) -> bool:
    parts = urlsplit(link)
    return bool(parts.scheme or parts.netloc)


def dead(path: Path, link: str) -> bool:
    """Whether a link within the site leads to no file, or to no place in it."""
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return True
    return bool(parts.fragment) and target.suffix == ".html" and unquote(parts.fragment) not in page(target).ids


def malformed(link: str) -> bool:
    """Whether a link that leads elsewhere cannot be one."""
    parts = urlsplit(link)
    return not (
        parts.scheme == "https" and re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc) and " " not in link
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    into = tmp_path_factory.mktemp("site")
    done = build(ROOT, into)
    assert [line for line in done.stderr.splitlines() if not line.startswith("INFO")] == []
    assert (done.returncode, done.stdout) == (0, "")
    return into


def test_every_page_is_there(site):
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert all((site / path.with_suffix(".html")).is_file() for path in sources)


def test_nothing_is_loaded_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert [(p.name, link) for p in pages for link in page(p).fetched if elsewhere(link)] == []
    # The theme's script would fetch a renderer for diagrams.
    assert [p.name for p in pages if 'class="mermaid"' in p.read_text(encoding="utf-8")] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']*", styles) == []


def test_every_link_leads_somewhere(site):
    links = [(path, link) for path in site.rglob("*.html") if path.name != "404.html" for link in page(path).links]
    assert len(links) > 1000
    assert [(p.name, link) for p, link in links if not elsewhere(link) and dead(p, link)] == []
    assert [(p.name, link) for p, link in links if elsewhere(link) and malformed(link)] == []


def test_a_dead_link_would_be_seen(site):
    start = site / "index.html"
    assert [dead(start, link) for link in ("no.html", "index.html#no", "#no")] == [True] * 3
    assert [dead(start, link) for link in ("not-claimed.html", "not-claimed.html#of-the-hooks", "#where-to-begin")] == [
        False
    ] * 3
    assert [malformed(link) for link in ("http://a.b", "https://a", "https://a b.c", "mailto:a@b.c")] == [True] * 4
    assert not malformed("https://github.com/sgl-project/sglang/pull/32153")


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("[a](no.md)", "contains a link 'no.md', but the target is not found"),
        ("[a](#no)", "contains a link '#no', but there is no such anchor"),
        ("[a](/no.md)", "contains an absolute link '/no.md'"),
        ("[a](another.md)", 'The following pages exist in the docs directory, but are not included in the "nav"'),
        ("fine", ""),
    ],
)
def test_the_build_fails_on_what_is_broken(tmp_path, text, warning):
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{settings}\nnav:\n  - index.md\n", encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n{text}\n", encoding="utf-8")
    if "another" in text:
        (tmp_path / "docs" / "another.md").write_text("# Not in the nav\n", encoding="utf-8")
    done = build(tmp_path, tmp_path / "site")
    said = done.stdout + done.stderr
    assert (done.returncode, "Aborted with 1 warnings" in said) == ((1, True) if warning else (0, False))
    assert warning in said


def links_of(path: Path) -> list[str]:
    tokens = MarkdownIt().enable("table").parse(path.read_text(encoding="utf-8"))
    inside = [child for token in tokens for child in token.children or ()]
    return [str(t.attrs[key]) for t in inside for key in ("href", "src") if key in t.attrs]


@pytest.mark.parametrize("name", ROOT_PAGES)
def test_links_of_the_pages_outside_the_site(name):
    path = ROOT / name
    for link in links_of(path):
        if elsewhere(link):
            assert not malformed(link), link
        else:
            assert (path.parent / urlsplit(link).path).exists(), link


def named_paths(text: str) -> list[str]:
    """Files of this repository that a page names, as code; those with a part to be filled in are left out."""
    found = re.findall(rf"`((?:{'|'.join(OURS)})/[\w./-]+)`", text)
    return [name for name in found if not re.search(r"\b(?:ID|NNN+)\b", name)]


def test_every_file_that_is_named_is_there():
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ROOT_PAGES if name != "CHANGELOG.md")]
    named = {(path.name, name) for path in pages for name in named_paths(path.read_text(encoding="utf-8"))}
    assert len(named) > 30
    assert {(page, name) for page, name in named if not _exists(name)} == set()


def _exists(name: str) -> bool:
    """A module may be named without its suffix; the map in ARCHITECTURE.md names those of `checker` below it."""
    return any((ROOT / f"{folder}{name}{suffix}").exists() for folder in ("", "checker/") for suffix in ("", ".py"))


def test_a_file_that_is_not_there_would_be_seen():
    text = "`checker/verify.py` `checker/no.py` `docs/properties/ID.md` `srt/managers/scheduler.py` `deploy/README.md`"
    assert named_paths(text) == ["checker/verify.py", "checker/no.py", "deploy/README.md"]
