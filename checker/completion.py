"""What a shell completes: names of profiles, properties, remedies, loops and modes; and `checker completion`.

Click does the talking with the shell. A name is looked up in the profile that the line already names. Nothing here
raises: where a name cannot be looked up, nothing is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from checker.reporter import TerminalReporter

if TYPE_CHECKING:
    from spec.profile import Profile

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
SHELLS = ("bash", "zsh", "fish")
_SCRIPT_VARIABLE = "_CHECKER_COMPLETE"


def _profile(ctx: click.Context) -> Profile:
    from checker.options import chosen_profile  # noqa: PLC0415 - the options need what is here

    return chosen_profile(ctx.params.get("profile"), None, ())


def _profiles(_ctx: click.Context) -> Iterable[str]:
    from spec.profile import bundled_profiles  # noqa: PLC0415 - loaded where a line is completed

    return bundled_profiles()


def _properties(_ctx: click.Context) -> Iterable[str]:
    from spec.properties import catalogue  # noqa: PLC0415 - it loads z3

    return catalogue()


def _remedies(ctx: click.Context) -> Iterable[str]:
    profile = _profile(ctx)
    return [*profile.remedies, *profile.variants, "all"]


def _of_configuration(name: str, ctx: click.Context) -> Iterable[str]:
    found: Iterable[str] = getattr(_profile(ctx).configuration, name)
    return found


_KNOWN: dict[str, Callable[[click.Context], Iterable[str]]] = {
    "profile": _profiles,
    "property": _properties,
    "remedy": _remedies,
    "engine": lambda _ctx: ["installed"],
    **{name: partial(_of_configuration, name) for name in ("loop", "mode", "storage")},
}


def names(kind: str) -> Complete:
    """Completes the names of one kind. Where none begins so, a profile may be a file."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = [name for name in _KNOWN[kind](ctx) if name.startswith(incomplete)]
        except Exception:  # noqa: BLE001 - a shell must not be shown a traceback while someone types
            return []
        if kind == "profile" and not found:
            return files(ctx, _param, incomplete)
        return [CompletionItem(name) for name in found]

    return complete


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the names of files."""
    return [CompletionItem(incomplete, type="file")]


def folders(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the names of folders."""
    return [CompletionItem(incomplete, type="dir")]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Write the script that makes SHELL complete commands, options and names."""
    kind = get_completion_class(shell)
    if kind is None:  # a shell that this version of click does not know
        raise click.UsageError(f"click cannot complete for {shell}")
    # Its `source` would ask the shell for its version, and the shell need not be installed here.
    script = kind(ctx.find_root().command, {}, "checker", _SCRIPT_VARIABLE)
    TerminalReporter().data((script.source_template % script.source_vars()).strip())
