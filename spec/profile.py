"""A profile: the data that turns the generic protocol into one engine version. Remedies are named differences of it.

A profile file is TOML. It is either whole, or has a `base` and a table `set` that is laid over the base; a remedy's
`set` is laid over the profile in the same way. Errors name the file, the line and the key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from spec.errors import ProfileError, UnknownNameError
from spec.schema import build, line_of, place_of

SCHEMA = 1
# What spec.primitives and spec.protocol know how to build.
_PRIMITIVES = ("reap", "retry", "schedule", "launch", "process", "record", "requeue", "abort_all", "drain")
_LEDGERS = ("write_through", "load_back", "backup", "prefetch")
_GATES = ("flush", "deferred_flush")
DEFAULT_PROFILE = "sglang-0.5.23"


@dataclass(frozen=True)
class Loop:
    """One event loop: the primitives of a paused and of a running pass, in order."""

    source: str
    paused: tuple[str, ...]
    running: tuple[str, ...]
    result_queue: bool = False


@dataclass(frozen=True)
class PauseMode:
    """What the pause handler does, in order, and whether it sets the scheduler's flag."""

    source: str
    sets_flag: bool
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Move:
    """One move of a ledger's entries. `by` is a primitive (moves all) or device or storage (moves the first)."""

    from_: str
    to: str
    by: str
    source: str
    or_to: str | None = None
    """Where the entries go that the actor does not take on, e.g. a lookup that is revoked."""
    retried: bool = False
    """Whether what went to `or_to` may be tried again later."""
    starts: str | None = None
    """The ledger in which each retired entry starts one of its own, where that ledger exists."""
    fair: str = "none"


@dataclass(frozen=True)
class LedgerFacts:
    """One kind of in-flight work: stages in order, and the moves between them."""

    source: str
    reaper: str
    stages: tuple[str, ...]
    metric: Mapping[str, str]
    moves: tuple[Move, ...]
    needs: str | None = None


@dataclass(frozen=True)
class PrefetchFacts:
    """Lookups in the storage tier."""

    source: str
    threshold_tokens: int
    on_requeue: bool
    retry_attempts: int
    cut_at_admission: bool


@dataclass(frozen=True)
class Gate:
    """A predicate that a control request must pass, and what it waits for."""

    source: str
    waits_for: tuple[str, ...]
    waiting: str


@dataclass(frozen=True)
class FlushFacts:
    """What a granted flush does."""

    source: str
    clears: tuple[str, ...]
    joins_storage_threads: bool


@dataclass(frozen=True)
class UpdateFacts:
    """What a weight update does about the caches and the forward in flight."""

    source: str
    flush: str
    waits_for_forward: bool


@dataclass(frozen=True)
class StorageFacts:
    """How pages are named in the storage tier."""

    source: str
    key: str


@dataclass(frozen=True)
class WatchdogFacts:
    """Whether the watchdog can tell a pause from a hang."""

    source: str
    knows_pause: bool


@dataclass(frozen=True)
class Matrix:
    """What a verdict is checked for: each combination of the tuples."""

    loop: tuple[str, ...]
    mode: tuple[str, ...]
    storage: tuple[str, ...]
    write_policy: str
    host_mode: str
    ranks: int


@dataclass(frozen=True)
class Configuration:
    """One combination; part of every verdict."""

    loop: str
    mode: str
    storage: str
    write_policy: str = "write_through"
    host_mode: str = "cache"
    ranks: int = 1

    def as_dict(self) -> dict[str, str | int]:
        """What the JSON shows: all but the loop, which has a field of its own."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "loop"}


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
    applied: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    path: str = field(default="", compare=False)

    def configurations(self, loops: Iterable[str] = (), modes: Iterable[str] = ()) -> list[Configuration]:
        """Every combination, of these loops and modes only where given. Raises UnknownNameError."""
        matrix = self.configuration
        chosen = tuple(loops) or matrix.loop
        wanted = tuple(modes) or matrix.mode
        for kind, values, valid in (("loop", chosen, matrix.loop), ("mode", wanted, matrix.mode)):
            for value in values:
                if value not in valid:
                    raise UnknownNameError(kind, value, valid)
        return [
            Configuration(loop, mode, storage, matrix.write_policy, matrix.host_mode, matrix.ranks)
            for loop, mode, storage in product(dict.fromkeys(chosen), dict.fromkeys(wanted), matrix.storage)
        ]

    def with_remedies(self, names: Iterable[str]) -> Profile:
        """This profile with the remedies' differences laid over it. `all` takes every one. Raises QuiesceError."""
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            if name not in (*self.remedies, "all"):
                raise UnknownNameError("remedy", name, [*self.remedies, "all"])
        if "all" in wanted:
            wanted = list(self.remedies)
        profile = self
        for name in wanted:
            try:
                profile = _from_raw(self.name, overlay(profile.raw, self.remedies[name].set), self.path, "")
            except ProfileError as error:
                raise _in_remedy(self.path, name, error) from error
        return replace(profile, applied=tuple(wanted))


@dataclass(frozen=True)
class Remedy:
    """A named difference between two profiles that also exists as a runtime hook."""

    summary: str
    hook: str
    set: Mapping[str, Any]


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


def _read(path: str) -> tuple[dict[str, Any], str]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(path, "", f"cannot be read: {error}") from error
    try:
        return tomllib.loads(text), text
    except (ValueError, RecursionError) as error:
        raise ProfileError(path, "", f"not TOML: {error}") from error


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


def _in_remedy(path: str, name: str, error: ProfileError) -> ProfileError:
    """The error of a profile with a remedy laid over it, where it was written: in its file, or in one of its bases."""
    keys = ("remedies", name, "set", *error.key.split("."))
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
    _check_names(profile, text)
    return profile


def _check_names(profile: Profile, text: str) -> None:
    """Names inside the profile must refer to something in it."""
    for keys, value, valid in _references(profile):
        names = sorted(valid)
        if value not in names:
            problem = f"unknown name {value!r}; valid names: {', '.join(names)}"
            raise ProfileError(profile.path, ".".join(keys), problem, line_of(text, keys))
    _check_values(profile, text)
    for name, ledger in profile.ledgers.items():
        for word in (name, *ledger.stages):
            if not word.isidentifier():
                problem = f"{word!r} names a variable: letters, digits and underscores only"
                raise ProfileError(profile.path, f"ledgers.{name}", problem, line_of(text, ("ledgers", name)))


def _check_values(profile: Profile, text: str) -> None:
    """What must not be empty, negative, missing, or named like something of the model's own."""
    matrix = profile.configuration

    def fail(keys: tuple[str, ...], problem: str) -> None:
        raise ProfileError(profile.path, ".".join(keys), problem, line_of(text, keys))

    for key in ("loop", "mode", "storage"):
        values = getattr(matrix, key)
        if not values:
            fail(("configuration", key), "must name at least one")
        if twice := [value for value in dict.fromkeys(values) if values.count(value) > 1]:
            fail(("configuration", key), f"must name each once, names {', '.join(map(repr, twice))} more than once")
    if matrix.ranks != 1:
        fail(("configuration", "ranks"), f"must be 1, is {matrix.ranks}: more ranks are not modelled")
    for key in ("threshold_tokens", "retry_attempts"):
        if getattr(profile.prefetch, key) < 0:
            fail(("prefetch", key), f"must not be negative, is {getattr(profile.prefetch, key)}")
    for kind, needed, given in (("ledgers", _LEDGERS, profile.ledgers), ("gates", _GATES, profile.gates)):
        if odd := set(given) ^ set(needed):
            fail((kind, min(odd)), f"must be exactly {', '.join(needed)}; they are {', '.join(given)}")
    _check_stages(profile, text)


def _check_stages(profile: Profile, text: str) -> None:
    def fail(keys: tuple[str, ...], problem: str) -> None:
        raise ProfileError(profile.path, ".".join(keys), problem, line_of(text, keys))

    for name, ledger in profile.ledgers.items():
        if not ledger.stages or len(set(ledger.stages)) < len(ledger.stages):
            fail(("ledgers", name, "stages"), "must name at least one stage, each once")
        if reserved := {"retired", "ahead", "retry", "budget", "orphan"} & set(ledger.stages):
            fail(("ledgers", name, "stages"), f"{min(reserved)!r} is a name of the model's own")


def _references(profile: Profile) -> Iterator[tuple[tuple[str, ...], str, Iterable[str]]]:
    """Where a name stands, the name, and what it may be."""
    for name, loop in profile.loops.items():
        yield from ((("loops", name, "paused"), step, profile.primitives) for step in loop.paused)
        yield from ((("loops", name, "running"), step, profile.primitives) for step in loop.running)
    for name, mode in profile.pause.items():
        yield from ((("pause", name, "steps"), step, profile.primitives) for step in mode.steps)
    for name, ledger in profile.ledgers.items():
        yield from _move_references(name, ledger, profile)
    terms = {"running", "last_batch", "result_pending", *profile.ledgers}
    for name, gate in profile.gates.items():
        yield from ((("gates", name, "waits_for"), term, terms) for term in gate.waits_for)
        yield ("gates", name, "waiting"), gate.waiting, ["unless-paused", "always"]
    yield ("update", "flush"), profile.update.flush, ["immediate", "waits"]
    yield ("storage", "key"), profile.storage.key, ["tokens", "tokens+epoch"]
    yield from ((("configuration", "loop"), name, profile.loops) for name in profile.configuration.loop)
    yield from ((("configuration", "mode"), name, profile.pause) for name in profile.configuration.mode)
    yield from ((("configuration", "storage"), name, ["none", "file"]) for name in profile.configuration.storage)
    # What is modelled, and nothing else: a verdict names its configuration.
    yield ("configuration", "write_policy"), profile.configuration.write_policy, ["write_through"]
    yield ("configuration", "host_mode"), profile.configuration.host_mode, ["cache"]
    yield from ((("flush", "clears"), tier, ["device", "host"]) for tier in profile.flush.clears)
    yield from ((("primitives",), name, _PRIMITIVES) for name in profile.primitives)


def _move_references(
    name: str, ledger: LedgerFacts, profile: Profile
) -> Iterator[tuple[tuple[str, ...], str, Iterable[str]]]:
    keys = ("ledgers", name, "moves")
    for move in ledger.moves:
        yield keys, move.from_, ledger.stages
        yield keys, move.to, [*ledger.stages, "retired"]
        yield keys, move.by, [*profile.primitives, "device", "storage"]
        yield keys, move.fair, ["none", "weak", "strong"]
        if move.or_to is not None:
            yield keys, move.or_to, ["retired"]
        if move.starts is not None:
            yield keys, move.starts, profile.ledgers
    yield from ((("ledgers", name, "metric"), stage, ledger.metric) for stage in ledger.stages)
    yield from ((("ledgers", name, "metric"), m, ["queued", "submitted", "ready"]) for m in ledger.metric.values())
    if ledger.needs is not None:
        yield ("ledgers", name, "needs"), ledger.needs, ["storage"]
