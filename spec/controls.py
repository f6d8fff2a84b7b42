"""Control requests beside pause, flush and update: memory released and resumed, storage attached, detached, cleared.

Each that has a gate is *wanted* from its first refusal since the pause until it is granted or the engine resumes, as a
flush is.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from spec.concern import Concern, Part, Rule
from spec.draft import Draft
from spec.steps import Flow
from spec.terms import BoolTerm, conj, disj, implies, ite, neg
from spec.tla import EachStep, LeadsTo, Sort, Variable

if TYPE_CHECKING:
    from spec.facts_controls import Controls
    from spec.steps import Steps

GRANTED = "paused-controls-succeed"


def wanted(name: str) -> str:
    """The variable that says that this control was refused and is still wanted."""
    return f"wanted_{name}"


class ControlRequests(Concern):
    """The controls that a profile speaks of: `released`, `detached`, and what is wanted of each gate."""

    def __init__(self, steps: Steps, facts: Controls) -> None:
        """`facts` say which there are, and what each does where its gate is closed."""
        self.steps = steps
        self.facts = facts
        self.gates = {
            name: one.gate
            for name in ("release", "attach", "detach", "clear")
            if (one := getattr(facts, name)) is not None and one.gate
        }

    def variables(self) -> Iterable[Variable]:
        """What has been released, detached, cleared; what is wanted."""
        if self.facts.release:
            yield Variable("released", Sort.BOOL)
        if self.facts.detach:
            yield Variable("detached", Sort.BOOL)
        if self.facts.clear:
            yield Variable("clears", Sort.NAT, ghost=True)
        yield from (Variable(wanted(name), Sort.BOOL) for name in self.gates)

    def rules(self) -> Iterable[Rule]:
        """What a trainer or an operator sends."""
        f = self.facts
        if f.release:
            yield Rule("ReleaseGranted", "trainer", f.release.source, self.ReleaseGranted)
            yield Rule("ReleaseRefused", "trainer", f.release.source, self.ReleaseRefused)
        if f.resume:
            yield Rule("Resume", "trainer", f.resume.source, self.Resume)
            yield Rule("ResumeRefused", "trainer", f.resume.source, self.ResumeRefused)
        if f.detach:
            yield Rule("DetachGranted", "trainer", f.detach.source, self.DetachGranted)
            yield Rule("DetachRefused", "trainer", f.detach.source, partial(self.Refused, name="detach"))
        if f.attach:
            yield Rule("AttachGranted", "trainer", f.attach.source, self.AttachGranted)
            yield Rule("AttachRefused", "trainer", f.attach.source, partial(self.Refused, name="attach"))
        if f.clear:
            yield Rule("Clear", "trainer", f.clear.source, self.Clear)
            if f.clear.gate:
                yield Rule("ClearRefused", "trainer", f.clear.source, partial(self.Refused, name="clear"))
        if f.abort_all:
            yield Rule("AbortAll", "client", f.abort_all.source, self.AbortAll)

    def claims(self, property_id: str) -> Iterable[Part]:
        """What is wanted is granted; what is said is so; nothing runs without its memory."""
        s, variables = self.steps.now, self.steps.variables
        if property_id == GRANTED:
            for name, gate in self.gates.items():
                pending = conj(s.paused, s[wanted(name)], *self._asked(s, name))
                yield Part(LeadsTo(pending, disj(self.steps.gate(s, gate), neg(s.paused))), name)
        if property_id == "engine-survives" and self.facts.release:
            forward = variables["forwards"].next > s.forwards
            yield Part(EachStep(implies(forward, neg(s.released))), "released")
        if property_id == "flush-tells-truth" and self.facts.clear:
            cleared = variables["clears"].next > s.clears
            writes = self.steps.ledgers["backup"].entries(s)
            yield Part(EachStep(implies(cleared, conj(neg(variables["has_storage"].next), writes == 0))), "clear")

    def continued(self, s: Draft) -> None:
        """Nothing is wanted of an engine that is not paused."""
        for name in self.gates:
            s[wanted(name)] = False

    def stops_loop(self, s: Draft) -> Iterable[BoolTerm]:
        """The loop serves nothing while its memory is released, where it looks."""
        return [s.released] if self.facts.release and not self.facts.release.serves_on else []

    def stores(self, s: Draft) -> BoolTerm | None:
        """Lookups and backups start only while a backend is attached."""
        return neg(s.detached) if self.facts.detach else None

    # ---- memory

    def ReleaseGranted(self, s: Draft) -> None:
        """`release_memory_occupation` of an idle engine: the KV is given up, then flushed, the result unread."""
        gate = self._gate(s, "release")
        s.when(gate)
        self.steps.reset(s)
        s.released = True
        s[wanted("release")] = False

    def ReleaseRefused(self, s: Draft) -> None:
        """The engine is not idle: the handler asserts that it is, or says so."""
        s.when(neg(self._gate(s, "release")))
        if self.facts.release and self.facts.release.refused == "raises":
            s.raised = True
        self._want(s, "release")

    def Resume(self, s: Draft) -> None:
        """`resume_memory_occupation`: no idle check."""
        s.when(s.released)
        s.released = False

    def ResumeRefused(self, s: Draft) -> None:
        """Nothing was released: the tag is not in the set that it is removed from."""
        s.when(neg(s.released))
        if self.facts.resume and self.facts.resume.refused == "raises":
            s.raised = True

    # ---- storage

    def DetachGranted(self, s: Draft) -> None:
        """`detach_hicache_storage_wrapped`: the threads are joined; what is stored stays."""
        s.when(*self._asked(s, "detach"), self._gate(s, "detach"))
        s.detached = True
        s.prefetch_orphan = 0
        s[wanted("detach")] = False

    def AttachGranted(self, s: Draft) -> None:
        """`attach_hicache_storage_wrapped`: a backend under the same keys, with what it already holds."""
        s.when(*self._asked(s, "attach"), self._gate(s, "attach"))
        s.detached = False
        s[wanted("attach")] = False

    def Clear(self, s: Draft) -> None:
        """`clear_hicache_storage_wrapped`: the backend may not do it, or fail; the answer is success all the same."""
        facts = self.facts.clear
        s.when(*self._asked(s, "clear"), *([self._gate(s, "clear")] if "clear" in self.gates else []))
        gone = s.choose("gone", high=1, witness=1, meaning="whether the backend has cleared what it holds")
        done = gone > 0
        said = s.clears + 1
        s.has_storage = conj(s.has_storage, neg(done))
        s.stale_storage = conj(s.stale_storage, neg(done))
        s.clears = ite(done, said, s.clears) if facts and facts.reports else said
        if "clear" in self.gates:
            s[wanted("clear")] = False

    def Refused(self, s: Draft, name: str) -> None:
        """The gate is closed, and the answer says so."""
        s.when(*self._asked(s, name), neg(self._gate(s, name)))
        self._want(s, name)

    def AbortAll(self, s: Draft) -> None:
        """`abort_request(abort_all)` of a client, paused or not."""
        s.when(disj(s.waiting > 0, *([s.mine_running] if self.steps.mine else [])))
        self.steps.primitive("abort_all", s, Flow())

    def _asked(self, s: Draft, name: str) -> list[BoolTerm]:
        """When such a request makes sense: detach and clear what is attached, attach what is not."""
        if not self.facts.detach or name == "release":
            return []
        return [s.detached] if name == "attach" else [neg(s.detached)]

    def _gate(self, s: Draft, name: str) -> BoolTerm:
        return self.steps.gate(s, self.gates[name])

    def _want(self, s: Draft, name: str) -> None:
        s[wanted(name)] = disj(s[wanted(name)], s.paused)
