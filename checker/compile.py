"""Generates `engine_hooks/compiled/` from the spec: gates, stuck regions and safety predicates as plain Python.

`python -m checker.compile` writes the files and the JSON schemas, `--check` compares them (1: out of date). The
engine's processes get the result, never Z3. tests/spec/test_compile.py holds term and function against each other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import z3

from checker import schemas
from checker.compile_text import StuckRegion, clauses, constants, formatted, in_dict, in_tuple, table
from checker.digest import spec_digest
from checker.proof.refute import Sought, stuck_region
from checker.subject import Subject
from checker.workbench import Workbench
from engine_hooks.sglang.remedies import REMEDIES
from spec.facts import Variant
from spec.profile import Configuration, Profile, bundled_profiles, load_profile
from spec.properties import chosen
from spec.protocol import Protocol
from spec.terms import NEXT, BoolTerm, conj, disj, free_names, implies, neg
from spec.tla import LeadsTo, Sort

WORKERS = {"sglang-0.5.23": ("sglang-0.5.23-prefill", "sglang-0.5.23-decode")}
"""Profile to those of the same engine whose loops are others, and of which the stuck regions are compiled too."""
TARGETS = {"sglang-0.5.23": "engine_hooks/compiled/sglang_0_5_23.py"}
_STUCK_PROPERTY = "paused-flush-succeeds"
_MODE = "retract"
_REAPS, _DRAINS = "reap-while-paused", "pd-drains-while-paused"
_TYPES = ("CompiledLedger", "CompiledProfile", "Region", "Repaired", "State", "StuckKey")
_Predicates = tuple[Mapping[str, str], Mapping[str, Mapping[str, str]], Mapping[str, str]]
_ENGINE_TERMS = ("running", "last_batch", "result_pending")


@dataclass(frozen=True)
class _Function:
    """One generated predicate."""

    name: str
    doc: str
    term: BoolTerm
    step: bool = False


class Compiler:
    """Generates the module of one profile."""

    def __init__(self, profile: Profile) -> None:
        """The widest configuration (overlap, with storage) names every variable that a probe has to read."""
        self.profile = profile
        self.functions: dict[str, _Function] = {}
        self.hooks = hooked(profile)
        self.workers = [load_profile(name) for name in WORKERS.get(profile.name, ())]
        widest = Configuration("overlap", _MODE, "file")
        self.subject = Workbench(profile, widest).subject(follow_request=False)

    def module(self) -> str:
        """The text of the module."""
        gates, blockers, always = self._predicates(self.subject)
        bearing, regions = self._regions()
        repaired = dict(self._repaired(gates, blockers, always))
        steps = {"no-new-lookup-while-paused": self._lookups()}
        text = "\n".join(
            [
                *self._head(),
                *self._bodies(),
                *table("_LEDGERS", self._ledgers()),
                *constants(self._variables(), regions),
                *self._profile_lines(gates, blockers, always, steps),
                *self._repair_lines(bearing, repaired),
                ")",
            ]
        )
        return formatted(text + "\n")

    def _add(self, name: str, doc: str, term: BoolTerm, *, step: bool = False) -> str:
        name = name.replace("-", "_")
        for known in self.functions.values():
            if known.term.eq(term):
                return known.name
        self.functions[name] = _Function(name, doc, term, step)
        return name

    def _predicates(self, subject: Subject) -> _Predicates:
        """Gates, what blocks each, and the state claims, of the profile or of one with a remedy."""
        applied = subject.protocol.profile.applied
        gates = {
            name: self._add("_".join([f"gate_{name}", *applied]), f"The gate {name} is open.", term)
            for name, term in subject.spec.definitions.items()
        }
        blockers = {name: dict(self._blockers(subject, name)) for name in gates}
        return gates, blockers, {"deferred-flush-agrees": self._deferred(subject)}

    def _repaired(self, *before: Mapping[str, object]) -> Iterator[tuple[str, Sequence[Mapping[str, object]]]]:
        """Remedy to what it makes of the predicates, where it makes anything of them."""
        for name in self.hooks:
            if name in _differences(self.profile):
                widest = Configuration("overlap", _MODE, "file")
                subject = Workbench(self.profile.with_remedies([name]), widest).subject(follow_request=False)
                after = self._predicates(subject)
                differ = [{k: v for k, v in a.items() if v != b[k]} for a, b in zip(after, before, strict=True)]
                if any(differ):
                    yield name, differ

    def _blockers(self, subject: Subject, gate: str) -> Iterator[tuple[str, str]]:
        protocol = subject.protocol
        facts = protocol.profile.gates[gate]
        engine = [p for t in facts.waits_for if t in _ENGINE_TERMS for p in protocol.gate_term(protocol.now, t)]
        yield "running", self._add("blocks_running", "A batch is running or its result waits.", neg(conj(*engine)))
        for name in facts.waits_for:
            if name in protocol.ledgers:
                term = disj(*(neg(p) for p in protocol.gate_term(protocol.now, name)))
                yield name, self._add(f"blocks_{name}", f"The ledger {name} has entries.", term)
        if facts.waiting == "always":
            yield "waiting", self._add("blocks_waiting", "Requests wait.", protocol.now.waiting > 0)
        else:
            waits = conj(neg(protocol.now.paused), protocol.now.waiting > 0)
            yield "waiting", self._add("blocks_waiting_unless_paused", "Requests wait, and it is not paused.", waits)

    def _regions(self) -> tuple[tuple[str, ...], list[StuckRegion]]:
        """The remedies that change a region, and the regions under each set of these.

        Raises:
            RuntimeError: where the other remedies together change what none of them changes alone.
        """
        places = self.profile.configurations(modes=[_MODE])
        hooks = [name for name in self.hooks if name in _differences(self.profile)]
        plain = [self._region(place, ()) for place in places]
        found = {name: [self._region(place, (name,)) for place in places] for name in hooks}
        bearing = sorted(name for name in hooks if not _alike(plain, found[name]))
        others = tuple(name for name in hooks if name not in bearing)
        regions = []
        for size in range(len(bearing) + 1):
            for remedies in combinations(bearing, size):
                here = [self._region(place, remedies) for place in places]
                if not _alike(here, [self._region(place, (*remedies, *others)) for place in places]):
                    raise RuntimeError(f"{', '.join(others)} together change a stuck region, and none of them alone")
                regions += here
        regions.sort(key=lambda r: (places.index(r.configuration), r.remedies))
        workers = [region for worker in self.workers for region in self._of_worker(worker)]
        return tuple(sorted({*bearing, *(n for r in workers for n in r.remedies)})), [*regions, *workers]

    def _of_worker(self, worker: Profile) -> Iterator[StuckRegion]:
        """The regions of the loops that honour a pause, of themselves or with the remedies.

        The hook of the first remedy reaps in these loops too, of which its difference does not speak; the second
        switches it on.
        """
        loops = {name: replace(loop, paused=("reap", *loop.paused)) for name, loop in worker.loops.items()}
        kinds = {
            (): worker,
            (_REAPS,): replace(worker, loops=loops),
            (_DRAINS, _REAPS): worker.with_remedies([_DRAINS]),
        }
        for place in worker.configurations(modes=[_MODE]):
            for remedies, profile in kinds.items():
                if profile.loops[place.loop].honours_pause:
                    yield self._region_of(profile, place, remedies)

    def _region(self, configuration: Configuration, remedies: tuple[str, ...]) -> StuckRegion:
        return self._region_of(self.profile.with_remedies(remedies), configuration, remedies)

    def _region_of(self, profile: Profile, configuration: Configuration, remedies: tuple[str, ...]) -> StuckRegion:
        subject = Workbench(profile, configuration).subject(follow_request=False)
        claim = next(p.claim for p in chosen([_STUCK_PROPERTY])[0].claims(subject.protocol, subject.spec))
        if not isinstance(claim, LeadsTo):
            raise TypeError(f"{_STUCK_PROPERTY} is not a leads-to")
        piece = subject.slice(claim.pending, claim.goal)
        if stuck_region(piece.system, claim, piece.lemmas) is None:
            return StuckRegion(configuration, remedies, None, ())
        # Again without lemmas: closed in every state that a probe may report, not only in those the spec can reach.
        stuck = stuck_region(piece.system, claim, (), Sought(fewest=False))
        if stuck is None:
            return StuckRegion(configuration, remedies, None, ())
        ledgers = subject.protocol.ledgers
        counters = {ledger.counter(stage) for ledger in ledgers.values() for stage in ledger.facts.stages}
        atoms = [_atom(subject.protocol, name) for name in stuck.atoms if name in counters]
        term = conj(claim.pending, disj(*atoms))
        name = "_".join(["stuck", configuration.loop.replace("-", "_"), configuration.storage, *remedies])
        doc = "Paused, a flush wanted, and an entry that nothing but help can retire."
        named = [n for n, one in ledgers.items() if any(one.counter(s) in stuck.atoms for s in one.facts.stages)]
        return StuckRegion(configuration, remedies, self._add(name, doc, term), tuple(named))

    def _deferred(self, subject: Subject) -> str:
        protocol, gates = subject.protocol, subject.spec.definitions
        now = protocol.now
        # The claim speaks of every state; what can be observed is a deferred flush that waits in one.
        alike = gates["flush"].eq(gates["deferred_flush"])
        wanted = conj(now.deferred_pending, gates["flush"])
        claim = z3.BoolVal(val=True) if alike else implies(wanted, gates["deferred_flush"])
        doc = "A waiting deferred flush is not refused what an immediate one would be granted."
        return self._add("_".join(["always_deferred_flush_agrees", *protocol.profile.applied]), doc, claim)

    def _lookups(self) -> str:
        claim = next(iter(chosen(["no-new-lookup-while-paused"])[0].claims(self.subject.protocol, self.subject.spec)))
        doc = "A paused pass starts no storage lookup."
        return self._add("step_no_new_lookup_while_paused", doc, claim.claim.holds, step=True)  # type: ignore[union-attr]

    def _head(self) -> Iterable[str]:
        return [
            f'"""The spec of {self.profile.name}, compiled. Generated by `python -m checker.compile`; do not edit."""',
            "",
            f"from engine_hooks.compiled.types import {', '.join(_TYPES)}",
            "",
        ]

    def _bodies(self) -> Iterator[str]:
        for function in self.functions.values():
            yield ""
            yield f"def {function.name}(s: State{', t: State' if function.step else ''}) -> bool:"
            yield f'    """{function.doc}"""'
            yield "    return bool("
            yield from clauses(function.term)
            yield "    )"
            yield ""

    def _ledgers(self) -> Mapping[str, str]:
        found = {}
        for name, ledger in self.subject.protocol.ledgers.items():
            stages: dict[str, list[str]] = {"queued": [], "submitted": [], "ready": []}
            for stage in ledger.facts.stages:
                stages[ledger.facts.metric[stage]].append(ledger.counter(stage))
            parts = ", ".join(f'"{k}": {in_tuple(v)}' for k, v in stages.items())
            extra = ", needs_storage=True" if ledger.facts.needs == "storage" else ""
            found[name] = f'CompiledLedger(\n        {{{parts}}},\n        "{ledger.facts.reaper}"{extra},\n    )'
        return found

    def _variables(self) -> list[str]:
        names: set[str] = set()
        for function in self.functions.values():
            names |= {n.removesuffix(NEXT) for n in free_names(function.term)}
        own = [name for name in self.subject.protocol.variables if name in names]
        return [*own, *sorted(names.difference(own))]

    def _profile_lines(
        self,
        gates: Mapping[str, str],
        blockers: Mapping[str, Mapping[str, str]],
        always: Mapping[str, str],
        steps: Mapping[str, str],
    ) -> Iterator[str]:
        yield "PROFILE = CompiledProfile("
        yield f'    engine="{self.profile.engine}",'
        yield f'    engine_version="{self.profile.version}",'
        yield f'    profile="{self.profile.name}",'
        yield f'    spec_digest="{spec_digest(self.profile)}",'
        yield "    variables=_VARIABLES,"
        yield "    ledgers=_LEDGERS,"
        yield f"    gates={in_dict(gates)},"
        yield "    blockers={"
        yield from (f'        "{gate}": {in_dict(found)},' for gate, found in blockers.items())
        yield "    },"
        for name, part in (("stuck", "region"), ("stuck_ledgers", "ledgers")):
            key, found = f'StuckKey(loop, "{_MODE}", storage, remedies)', f'{{"{_STUCK_PROPERTY}": {part}}}'
            rows = "for loops, storage, remedies, region, ledgers in _STUCK for loop in loops"
            yield f"    {name}={{{key}: {found} if region else {{}} {rows}}},"
        yield f"    always={in_dict(always)},"
        yield f"    steps={in_dict(steps)},"
        yield "    remedies={"
        yield from (f'        "{name}": "{summary}",' for name, summary in self.hooks.items())
        yield "    },"

    def _repair_lines(
        self, bearing: tuple[str, ...], repaired: Mapping[str, Sequence[Mapping[str, object]]]
    ) -> Iterator[str]:
        yield f"    bearing={in_tuple(bearing)},"
        yield "    repaired={"
        for name, (gates, blockers, always) in repaired.items():
            inner = ", ".join(f'"{gate}": {in_dict(found)}' for gate, found in blockers.items())  # type: ignore[arg-type]
            yield f'        "{name}": Repaired(gates={in_dict(gates)}, blockers={{{inner}}}, always={in_dict(always)}),'  # type: ignore[arg-type]
        yield "    },"


def hooked(profile: Profile) -> dict[str, str]:
    """Each remedy that the plugin has for this engine version, with one line of what it changes.

    It is a difference of this profile, or of another of the same version that models what it is about.
    """
    every = [profile, *(load_profile(name) for name in bundled_profiles())]
    found: dict[str, str] = {}
    for one in every:
        if (one.engine, one.version) == (profile.engine, profile.version):
            found |= {name: d.summary for name, d in _differences(one).items() if name not in found}
    return {name: found[name] for name in REMEDIES if name in found}


def _differences(profile: Profile) -> Mapping[str, Variant]:
    return {**profile.remedies, **profile.variants}


def _alike(some: Sequence[StuckRegion], others: Sequence[StuckRegion]) -> bool:
    return [(r.function, r.ledgers) for r in some] == [(r.function, r.ledgers) for r in others]


def _atom(protocol: Protocol, name: str) -> BoolTerm:
    if name.startswith("~"):
        return neg(protocol.now[name[1:]])
    variable = protocol.variables[name]
    return variable.now if variable.sort is Sort.BOOL else variable.now > 0


def main(arguments: Sequence[str]) -> int:
    """Write what is generated, or with `--check` compare it: 1 where a file is out of date."""
    root = Path(__file__).resolve().parent.parent
    files = {target: Compiler(load_profile(name)).module() for name, target in TARGETS.items()}
    files |= {f"checker/schemas/{name}": text for name, text in schemas.generated().items()}
    stale = 0
    for target, text in files.items():
        path = root / target
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{target} is out of date; run: make generate\n")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
