"""The options that several commands share, and the profile that they name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import click

from checker.completion import names
from spec.errors import QuiesceError, UnknownNameError
from spec.profile import DEFAULT_PROFILE, Profile, bundled_path, bundled_profiles, load_profile

Command = TypeVar("Command", bound=Callable[..., Any])

INSTALL_ENGINE = "tools/setup.sh engine (in the checkout), or: pip install sglang==0.5.23"

profile_option = click.option(
    "--profile",
    metavar="NAME",
    help="A bundled profile, or the path of a TOML file.",
    # Before the other options, whose names are those of this profile.
    is_eager=True,
    shell_complete=names("profile"),
)
engine_option = click.option(
    "--engine",
    metavar="installed",
    help="Read the profile from the installed engine.",
    shell_complete=names("engine"),
)
remedy_option = click.option(
    "--remedy",
    "remedies",
    multiple=True,
    metavar="NAME",
    help="Lay a remedy or a variant over it; `all`: each remedy, no variant.",
    shell_complete=names("remedy"),
)
property_option = click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="ID",
    help="Only this property.",
    shell_complete=names("property"),
)
loop_option = click.option(
    "--loop", "loops", multiple=True, metavar="NAME", help="Only this event loop.", shell_complete=names("loop")
)
mode_option = click.option(
    "--mode", "modes", multiple=True, metavar="NAME", help="Only this pause mode.", shell_complete=names("mode")
)


def place_options(command: Command) -> Command:
    """The options for one configuration: an event loop, a pause mode, a storage tier."""
    for name, what in (("storage", "storage tier"), ("mode", "pause mode"), ("loop", "event loop")):
        text = f"The {what}; the profile's first by default."
        command = click.option(f"--{name}", metavar="NAME", help=text, shell_complete=names(name))(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Results as JSON on stdout.")
seed_option = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For the solver.")
anew_option = click.option("--anew", is_flag=True, help="Search for everything; use no kept proofs and runs.")
workers_option = click.option("--workers", type=click.IntRange(min=1), help="Processes; as many as cores by default.")


class NoEngineError(QuiesceError):
    """An installed engine was asked for, and there is none, or none with a profile. Remedy: the command in the text."""


def installed_profile() -> str | None:
    """The bundled profile of the installed SGLang, or None where there is no SGLang. Raises NoEngineError."""
    try:
        found = version("sglang")
    except PackageNotFoundError:
        return None
    name = f"sglang-{found}"
    if name not in bundled_profiles():
        valid = ", ".join(n for n in bundled_profiles() if n.startswith("sglang-"))
        raise NoEngineError(
            f"sglang {found} is installed, and no bundled profile speaks of it; bundled: {valid}\n"
            f"  verify one of these with --profile, or install what it speaks of: pip install sglang==0.5.23"
        )
    return name


def chosen_profile(profile: str | None, engine: str | None, remedies: Sequence[str]) -> Profile:
    """The profile that the options name, remedies laid over it. Raises QuiesceError."""
    if profile is not None and engine is not None:
        raise NoEngineError("--profile and --engine exclude each other; give one")
    if engine is not None:
        if engine != "installed":
            raise UnknownNameError("engine", engine, ["installed"])
        return _extracted().with_remedies(remedies)
    name = profile if profile is not None else (installed_profile() or DEFAULT_PROFILE)
    return load_profile(name).with_remedies(remedies)


def _extracted() -> Profile:
    """What the source of the installed engine says. Raises QuiesceError."""
    from checker.extract.read import extract  # noqa: PLC0415 - the other options need none of this

    try:
        version("sglang")
    except PackageNotFoundError as error:
        raise NoEngineError(f"no SGLang is installed in this environment; install it with: {INSTALL_ENGINE}") from error
    return extract().profile


def source_of(profile: Profile) -> str:
    """Where the profile comes from: bundled with this package, extracted from a source, or a file of the user's."""
    if profile.name in bundled_profiles() and profile.path == bundled_path(profile.name):
        return "bundled"
    return "extracted" if profile.extracted else "file"
