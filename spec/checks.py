"""What a profile must hold besides the right types: names that refer to something, values that are modelled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from spec.checks_concerns import added_references, gates_of_controls, problems
from spec.errors import ProfileError
from spec.facts import ACTORS, LOOKUP_ENDS, LedgerFacts
from spec.schema import line_of
from spec.split import CONDITIONS, split

if TYPE_CHECKING:
    from spec.profile import Profile

RANKS = (1, 2, 3, 4)
"""How many ranks are modelled; each verdict names its number."""

# What spec.primitives and spec.protocol know how to build.
_PRIMITIVES = ("reap", "retry", "schedule", "launch", "process", "record", "requeue", "abort_all", "drain")
_ADDED = ("yield", "merge", "adopt", "hold")
_LEDGERS = ("write_through", "load_back", "backup", "prefetch")
_STORED = ("backup", "prefetch")
_GATES = ("flush", "deferred_flush")
_EVENTS = ("arrive", LOOKUP_ENDS, "process", "queue", "requeue")


def check(profile: Profile, text: str) -> None:
    """Names inside the profile must refer to something in it."""
    for keys, value, valid in _references(profile):
        names = sorted(valid)
        if value not in names:
            problem = f"unknown name {value!r}; valid names: {', '.join(name or repr(name) for name in names)}"
            raise ProfileError(profile.path, ".".join(keys), problem, line_of(text, keys))
    _check_values(profile, text)
    for keys, problem in problems(profile):
        raise ProfileError(profile.path, ".".join(keys), problem, line_of(text, keys))
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
    if matrix.ranks not in (RANKS if profile.peers else RANKS[:1]):
        more = "more ranks are not modelled" if profile.peers else "more ranks need the table peers"
        most = f"{RANKS[0]} to {RANKS[-1]}" if profile.peers else "1"
        fail(("configuration", "ranks"), f"must be {most}, is {matrix.ranks}: {more}")
    for key in ("threshold_tokens", "retry_attempts"):
        if getattr(profile.prefetch, key) < 0:
            fail(("prefetch", key), f"must not be negative, is {getattr(profile.prefetch, key)}")
    _check_sets(profile, text)
    _check_stages(profile, text)


def _check_sets(profile: Profile, text: str) -> None:
    """The ledgers and gates that the model needs, and what a profile's own ledgers and loops must say."""

    def fail(keys: tuple[str, ...], problem: str) -> None:
        raise ProfileError(profile.path, ".".join(keys), problem, line_of(text, keys))

    _check_gates(profile, text)
    # Without a host tier there is nothing to copy to, and no storage behind it.
    if "host" in profile.flush.clears and (missing := [name for name in _LEDGERS if name not in profile.ledgers]):
        fail(("ledgers", missing[0]), f"missing; there are {', '.join(profile.ledgers)}")
    for name, ledger in profile.ledgers.items():
        if (name in _LEDGERS) == bool(ledger.created_by):
            problem = "is started by the model itself" if ledger.created_by else f"must be one of {', '.join(_EVENTS)}"
            fail(("ledgers", name, "created_by"), problem)
        if ledger.each and ledger.created_by not in ("arrive", "queue", "requeue"):
            fail(("ledgers", name, "each"), "needs created_by arrive, queue or requeue: each request starts one there")
        if name in _STORED and ledger.needs is None:
            fail(("ledgers", name, "needs"), "must be 'storage': what the model itself starts there needs it")
    for keys, problem in _of_loops(profile):
        fail(keys, problem)


def _of_loops(profile: Profile) -> Iterator[tuple[tuple[str, ...], str]]:
    """What one fact of a loop needs of another, and does not find."""
    for name, loop in profile.loops.items():
        if loop.chains and not loop.result_queue:
            yield ("loops", name, "chains"), "needs result_queue: what a launch is chained to is queued there"
        if loop.micro_batches and not loop.result_queue:
            yield ("loops", name, "micro_batches"), "needs result_queue: each has a result of its own in flight"
        if loop.micro_batches and (profile.peers or profile.accounts):
            yield ("loops", name, "micro_batches"), "is not modelled beside peers or accounts"
        if loop.pause_waits and not (loop.micro_batches and loop.honours_pause):
            yield ("loops", name, "pause_waits"), "needs micro_batches and honours_pause: what it waits for is theirs"
        order = [step for step in loop.running if step in {"launch", "process"}]
        if loop.skips_finishing and not (loop.result_queue and order == ["launch", "process"]):
            needs = "result_queue, and a running pass that launches and then processes: what it skips for is queued"
            yield ("loops", name, "skips_finishing"), f"needs {needs}"
        if loop.paused and not loop.honours_pause:
            yield ("loops", name, "paused"), "must be empty: a loop that does not honour the pause has no paused pass"


def _check_gates(profile: Profile, text: str) -> None:
    """Those that the model needs, and one for each control request that says so."""

    def fail(keys: tuple[str, ...], problem: str) -> None:
        raise ProfileError(profile.path, ".".join(keys), problem, line_of(text, keys))

    wanted = {*_GATES, *gates_of_controls(profile)}
    if odd := set(profile.gates) ^ wanted:
        names = ", ".join([*_GATES, *sorted(wanted - {*_GATES})])
        if (own := min(odd)) not in {*profile.gates, *_GATES}:
            fail(("controls", own), f"needs a gate of its own: gates.{own} is missing")
        fail(("gates", min(odd)), f"must be exactly {names}; they are {', '.join(profile.gates)}")


def _check_stages(profile: Profile, text: str) -> None:
    def fail(keys: tuple[str, ...], problem: str) -> None:
        raise ProfileError(profile.path, ".".join(keys), problem, line_of(text, keys))

    for name, ledger in profile.ledgers.items():
        if not ledger.stages or len(set(ledger.stages)) < len(ledger.stages):
            fail(("ledgers", name, "stages"), "must name at least one stage, each once")
        if reserved := {"retired", "ahead", "retry", "budget", "orphan"} & set(ledger.stages):
            fail(("ledgers", name, "stages"), f"{min(reserved)!r} is a name of the model's own")


def _step_references(
    keys: tuple[str, ...], steps: Iterable[str], profile: Profile
) -> Iterator[tuple[tuple[str, ...], str, Iterable[str]]]:
    for step in steps:
        plain, condition = split(step)
        yield keys, plain, profile.primitives
        if condition:
            yield keys, condition, CONDITIONS


def _references(profile: Profile) -> Iterator[tuple[tuple[str, ...], str, Iterable[str]]]:
    """Where a name stands, the name, and what it may be."""
    for name, loop in profile.loops.items():
        yield from _step_references(("loops", name, "paused"), loop.paused, profile)
        yield from _step_references(("loops", name, "running"), loop.running, profile)
    for name, mode in profile.pause.items():
        yield from _step_references(("pause", name, "steps"), mode.steps, profile)
    for name, ledger in profile.ledgers.items():
        yield from _move_references(name, ledger, profile)
    terms = {"running", "last_batch", "result_pending", *profile.ledgers}
    terms |= {f"held_{name}" for name in profile.holdings}
    terms |= {f"{name}.{stage}" for name, ledger in profile.ledgers.items() for stage in ledger.stages}
    for name, gate in profile.gates.items():
        yield from ((("gates", name, "waits_for"), term, terms) for term in gate.waits_for)
        yield from ((("gates", name, "names"), term, {*terms, "waiting"}) for term in gate.names)
        yield ("gates", name, "waiting"), gate.waiting, ["unless-paused", "always", "never"]
    yield ("update", "flush"), profile.update.flush, ["immediate", "waits"]
    yield ("prefetch", "declines"), profile.prefetch.declines, ["", "spent", "free"]
    yield ("storage", "key"), profile.storage.key, ["tokens", "tokens+epoch"]
    yield from ((("configuration", "loop"), name, profile.loops) for name in profile.configuration.loop)
    yield from ((("configuration", "mode"), name, profile.pause) for name in profile.configuration.mode)
    yield from ((("configuration", "storage"), name, ["none", "file"]) for name in profile.configuration.storage)
    # What is modelled, and nothing else: a verdict names its configuration.
    yield ("configuration", "write_policy"), profile.configuration.write_policy, ["write_through"]
    yield ("configuration", "host_mode"), profile.configuration.host_mode, ["cache", "buffer_only", "none"]
    yield from ((("flush", "clears"), tier, ["device", "host"]) for tier in profile.flush.clears)
    movers = {move.by for ledger in profile.ledgers.values() for move in ledger.moves} - set(ACTORS)
    yield from ((("primitives",), name, [*_PRIMITIVES, *_ADDED, *movers]) for name in profile.primitives)
    yield ("update", "stamps"), profile.update.stamps, ["before-flush", "on-success"]
    yield from added_references(profile)
    created = [(name, ledger.created_by) for name, ledger in profile.ledgers.items() if ledger.created_by]
    yield from ((("ledgers", name, "created_by"), event, [*_EVENTS, *profile.ledgers]) for name, event in created)


def _move_references(
    name: str, ledger: LedgerFacts, profile: Profile
) -> Iterator[tuple[tuple[str, ...], str, Iterable[str]]]:
    keys = ("ledgers", name, "moves")
    for move in ledger.moves:
        yield keys, move.from_, ledger.stages
        yield keys, move.to, [*ledger.stages, "retired"]
        yield keys, move.by, [*profile.primitives, *ACTORS]
        yield keys, move.fair, ["none", "weak", "strong"]
        if move.or_to is not None:
            yield keys, move.or_to, ["retired"]
        if move.starts is not None:
            yield keys, move.starts, profile.ledgers
    yield from ((("ledgers", name, "metric"), stage, ledger.metric) for stage in ledger.stages)
    yield from ((("ledgers", name, "metric"), m, ["queued", "submitted", "ready"]) for m in ledger.metric.values())
    yield from ((("ledgers", name, "holds_back"), stage, ledger.stages) for stage in ledger.holds_back)
    if ledger.needs is not None:
        yield (
            ("ledgers", name, "needs"),
            ledger.needs,
            ["storage"] if name in ("backup", "prefetch") else ["storage", "host"],
        )
