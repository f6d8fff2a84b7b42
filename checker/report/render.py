"""The page as one file: no network, no inline style, and only the script and style that are ours.

Whatever a report says is text to the template (autoescape), and a policy in the page lets a browser run and apply
nothing but our own script and style, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.metadata import version
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from checker.report.page import Page
from checker.report.playback import Playback


def html(page: Page | Playback) -> str:
    """The file: of a verification, or of a flight record or trace."""
    environment = Environment(
        loader=PackageLoader("checker.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = _ours("report.css"), _ours("report.js")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {_hash(style)}",
            f"script-src {_hash(script)}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    template = environment.get_template("report.html.j2" if isinstance(page, Page) else "record.html.j2")
    text = template.render(
        page=page,
        style=style,
        script=script,
        policy=policy,
        version=version("quiesce"),
    )
    # A lone surrogate, from the name of a file, has no bytes in UTF-8.
    return text.encode(errors="replace").decode()


def _ours(name: str) -> Markup:
    text = (files("checker.report") / "templates" / name).read_text(encoding="utf-8")
    return Markup("\n" + text)  # noqa: S704 - no word of a report is in it


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
