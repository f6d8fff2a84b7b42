"""A profile: the data that turns the generic protocol into one engine version. Remedies are named differences of it.

A profile file is TOML. It is either whole, or has a `base` and a table `set` that is laid over the base; a remedy's
`set` is laid over the profile in the same way. Errors name the file, the line and the key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from spec.checks import check
from spec.errors import ProfileError, UnknownNameError
from spec.facts import (
    Accounts,
    Configuration,
    Detach,
    Eviction,
    FlushFacts,
    Gate,
    Holding,
    LedgerFacts,
    LookupWait,
    Loop,
    Matrix,
    Merge,
    PauseMode,
    Peers,
    PrefetchFacts,
    Remedy,
    RequestFacts,
    StorageFacts,
    Threads,
    UpdateFacts,
    Variant,
    WatchdogFacts,
    Waves,
)
from spec.facts_controls import Controls, Requeue, Resend, Tier, UpdateSession
from spec.schema import build, line_of, place_of

__all__ = ["Configuration", "Profile", "bundled_path", "bundled_profiles", "load_profile", "overlay"]

SCHEMA = 1
DEFAULT_PROFILE = "sglang-0.5.23"


@dataclass(frozen=True)
class Profile:
    """One engine version, whole: every fact that the protocol is built from."""

    name: str
    engine: str
    version: str
    configuration: Matrix
    loops: Mapping[str, Loop]
    primitives: Mapping[str, str]
    pause: Mapping[str, PauseMode]
    ledgers: Mapping[str, LedgerFacts]
    prefetch: PrefetchFacts
    gates: Mapping[str, Gate]
    flush: FlushFacts
    update: UpdateFacts
    storage: StorageFacts
    watchdog: WatchdogFacts
    remedies: Mapping[str, Remedy]
    variants: Mapping[str, Variant] = field(default_factory=dict)
    """Differences that are laid over the profile like remedies, but not by `all`. Some have a hook too."""
    tree: bool = True
    """Whether prefixes are kept in a tree for other requests."""
    requests: RequestFacts = field(default_factory=RequestFacts)
    accounts: Accounts | None = None
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    eviction: Eviction | None = None
    detach: Detach | None = None
    lookup_wait: LookupWait | None = None
    threads: Threads | None = None
    merge: Merge | None = None
    peers: Peers | None = None
    waves: Waves | None = None
    controls: Controls | None = None
    update_session: UpdateSession | None = None
    tiers: Mapping[str, Tier] = field(default_factory=dict)
    requeue: Requeue | None = None
    resend: Resend | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Entries that the source of the engine does not decide, with the reason: what stands there is a guess."""
    applied: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    path: str = field(default="", compare=False)

    @property
    def extracted(self) -> bool:
        """Whether it was read from the source of an engine, whose package's folder is its path."""
        return Path(self.path).is_dir()

    def configurations(self, loops: Iterable[str] = (), modes: Iterable[str] = ()) -> list[Configuration]:
        """Every combination, of these loops and modes only where given. Raises UnknownNameError."""
        matrix = self.configuration
        chosen = tuple(loops) or matrix.loop
        wanted = tuple(modes) or matrix.mode
        for kind, values, valid in (("loop", chosen, matrix.loop), ("mode", wanted, matrix.mode)):
            for value in values:
                if value not in valid:
                    raise UnknownNameError(kind, value, valid, _elsewhere(value) if kind == "loop" else "")
        return [
            Configuration(loop, mode, storage, matrix.write_policy, matrix.host_mode, matrix.ranks)
            for loop, mode, storage in product(dict.fromkeys(chosen), dict.fromkeys(wanted), matrix.storage)
        ]

    def place(self, text: str) -> Configuration:
        """The configuration of a place: loop, pause mode and storage, with spaces between. Raises UnknownNameError."""
        loop, mode, storage = text.split()
        matrix = self.configuration
        for kind, value, valid in (("loop", loop, self.loops), ("mode", mode, self.pause)):
            if value not in valid:
                raise UnknownNameError(kind, value, list(valid))
        return Configuration(loop, mode, storage, matrix.write_policy, matrix.host_mode, matrix.ranks)

    def with_remedies(self, names: Iterable[str]) -> Profile:
        """This profile with the differences of these remedies and variants laid over it. Raises QuiesceError.

        `all` takes every remedy.
        """
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            if name not in (*self.remedies, *self.variants, "all"):
                raise UnknownNameError("remedy", name, [*self.remedies, *self.variants, "all"])
        if "all" in wanted:
            wanted = [*self.remedies, *(name for name in wanted if name in self.variants)]
        differences = {**self.remedies, **self.variants}
        profile = self
        for name in wanted:
            try:
                profile = _from_raw(self.name, overlay(profile.raw, differences[name].set), self.path, "")
            except ProfileError as error:
                raise _in_remedy(self.path, name, error, "remedies" if name in self.remedies else "variants") from error
        return replace(profile, applied=tuple(wanted))

    def with_difference(self, difference: Mapping[str, Any], path: str = "", text: str = "") -> Profile:
        """This profile with `difference`, read from `text` of the file `path`, laid over it. Raises ProfileError."""
        differing = _from_raw(self.name, overlay(self.raw, difference), path or self.path, text)
        return replace(differing, applied=self.applied)


def bundled_profiles() -> list[str]:
    """The names of the profiles that ship with the package."""
    folder = files("spec") / "profiles"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def bundled_path(name: str) -> str:
    """Where the bundled profile of this name lies."""
    return str(files("spec") / "profiles" / f"{name}.toml")


def load_profile(name_or_path: str) -> Profile:
    """A bundled profile by name, or any by the path of its TOML file. Raises UnknownNameError or ProfileError."""
    if name_or_path in bundled_profiles():
        return _load(name_or_path, bundled_path(name_or_path))
    if name_or_path.endswith(".toml"):
        return _load(Path(name_or_path).stem, name_or_path)
    raise UnknownNameError("profile", name_or_path, [*bundled_profiles(), "PATH.toml"])


def overlay(base: Mapping[str, Any], difference: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `difference` laid over it, table by table; anything but a table is replaced whole."""
    merged = dict(base)
    for key, value in difference.items():
        under = merged.get(key)
        merged[key] = overlay(under, value) if isinstance(value, Mapping) and isinstance(under, Mapping) else value
    return merged


_LIMIT = 1024 * 1024
"""No profile is as large; so none fills the memory."""


def _has(raw: Mapping[str, Any], key: str) -> bool:
    """Whether a profile has the entry of this dotted key, or leaves it to its default."""
    here: Any = raw
    *tables, _ = key.split(".")
    for part in tables:
        if not isinstance(here, Mapping) or part not in here:
            return False
        here = here[part]
    return isinstance(here, Mapping)


def from_raw(name: str, raw: Mapping[str, Any], path: str) -> Profile:
    """A profile of what a file would hold, read somewhere else. Raises ProfileError."""
    return _from_raw(name, raw, path, "")


def _head(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(_LIMIT + 1)


def _read(path: str) -> tuple[dict[str, Any], str]:
    try:
        # No pipe, which may never end or begin.
        special = Path(path).exists() and not Path(path).is_file()
        data = b"" if special else _head(path)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(path, "", f"cannot be read: {error}") from error
    if special or len(data) > _LIMIT:
        raise ProfileError(path, "", "it is no file" if special else f"it has more than {_LIMIT // 1024} KiB")
    try:
        return tomllib.loads(text), text
    except (ValueError, RecursionError) as error:
        raise ProfileError(path, "", f"not TOML: {error}") from error


def _elsewhere(loop: str) -> str:
    """Which bundled profiles have this loop."""
    found = [name for name in bundled_profiles() if loop in load_profile(name).configuration.loop]
    return f"it is a loop of: {', '.join(found)}" if found else ""


def _load(name: str, path: str, seen: tuple[str, ...] = ()) -> Profile:
    data, text = _read(path)
    if data.get("schema") != SCHEMA:
        raise ProfileError(path, "schema", f"must be {SCHEMA}, is {data.get('schema')!r}", line_of(text, ("schema",)))
    if "base" not in data:
        return _from_raw(name, data, path, text)
    base = data["base"]
    if extra := set(data) - {"schema", "base", "set"}:
        key = min(extra)
        raise ProfileError(path, key, "a profile with a base has only schema, base and set", line_of(text, (key,)))
    if base in seen or base not in bundled_profiles():
        valid = ", ".join(b for b in bundled_profiles() if b not in seen)
        raise ProfileError(path, "base", f"no such profile {base!r}; valid names: {valid}", line_of(text, ("base",)))
    if not isinstance(data.get("set", {}), dict):
        raise ProfileError(path, "set", f"must be a table, is {data['set']!r}", line_of(text, ("set",)))
    under = _load(base, bundled_path(base), (*seen, base))
    return _from_raw(name, overlay(under.raw, data.get("set", {})), path, text)


def _in_remedy(path: str, name: str, error: ProfileError, kind: str) -> ProfileError:
    """The error of a profile with a remedy laid over it, where it was written: in its file, or in one of its bases."""
    # Read from the source of an engine, it was written nowhere.
    if Path(path).is_dir():
        return error
    keys = (kind, name, "set", *error.key.split("."))
    places = []
    base: str | None = path
    while base is not None:
        data, text = _read(base)
        places.append((*place_of(text, keys), base))
        base = bundled_path(data["base"]) if "base" in data else None
    _, line, written = max(places, key=lambda place: place[0])
    return ProfileError(written, ".".join(keys), error.problem, line)


def _from_raw(name: str, raw: Mapping[str, Any], path: str, text: str) -> Profile:
    data = {key: value for key, value in raw.items() if key != "schema"}
    built: Profile = build(Profile, {**data, "name": name}, path, text)
    profile = replace(built, raw=raw, path=path)
    check(profile, text)
    for key in profile.unknown:
        if not _has(raw, key):
            raise ProfileError(path, "unknown", f"no such entry {key!r}", line_of(text, ("unknown", key)))
    return profile
