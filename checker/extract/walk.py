"""Walks the body of a function and what it calls, in the order in which it runs; what a scope decides is decided.

A walk knows nothing of the protocol. It is told what some expressions are worth (the scope), and what to do at a call:
follow it, note it, or leave it out. A branch that the scope does not decide is walked both ways; what happens in it is
noted with its condition. Names of local variables do not matter: an expression is written in terms of what they hold.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from checker.extract.reading import UNDECIDED, Env, Reading
from checker.extract.source import Function, Method, Place

Guard: TypeAlias = tuple[str, bool]
"""A condition in terms of attributes and calls, and what it must be. A loop is one too: `for …` or `while …`."""


@dataclass(frozen=True)
class Event:
    """A call that was noted, or an assignment to an attribute (`kind` is `call` or `store`)."""

    kind: str
    name: str
    guards: tuple[Guard, ...]
    place: Place
    chain: tuple[str, ...]
    """The functions from the outermost to the one in which it stands."""
    node: ast.AST = field(compare=False)
    text: str = ""
    """A call with the receiver, or for a store what is stored."""
    arguments: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def last(self) -> str:
        """The name without what it is of."""
        return self.name.rpartition(".")[2]


Decide: TypeAlias = Callable[[str, Method], "Method | str"]
"""For a call by its name, and the function that it stands in: the function to follow, or `note`, or `skip`."""

_MAX_DEPTH = 12


@dataclass
class Walk:
    """One walk. `events` grow in the order in which things happen."""

    scope: Mapping[str, Any]
    decide: Decide
    events: list[Event] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    """The conditions that the scope was asked about."""
    _stack: tuple[str, ...] = ()
    _open: set[int] = field(default_factory=set)

    def function(self, method: Method, bound: Env | None = None, guards: tuple[Guard, ...] = ()) -> None:
        """Walk the body of a function whose parameters are bound so."""
        here = id(method.node)
        if len(self._stack) >= _MAX_DEPTH:
            self.events.append(Event("call", "(too deep to follow)", guards, method.place, self._stack, method.node))
            return
        if here in self._open:
            return  # recursion: the first round has noted all of it
        outer, self._stack = self._stack, (*self._stack, method.name)
        self._open.add(here)
        _Body(self, method, dict(bound or {}), guards).run(method.node.body)
        self._open.discard(here)
        self._stack = outer

    def statements(self, method: Method, body: list[ast.stmt], env: Env) -> str:
        """Walk some statements of a function; returns how they end (`next`, `continue`, `break`, `return`, `raise`)."""
        outer, self._stack = self._stack, (*self._stack, method.name)
        end = _Body(self, method, env, ()).run(body)
        self._stack = outer
        return end


class _Body:
    """The statements of one function, with what its names hold."""

    def __init__(self, walk: Walk, method: Method, env: Env, guards: tuple[Guard, ...]) -> None:
        self.walk, self.method, self.env, self.guards = walk, method, env, guards
        self.local: dict[str, Method] = dict(env.get("#functions", {}))

    @property
    def reading(self) -> Reading:
        return Reading(self.walk.scope, self.env, self.walk.asked)

    def run(self, body: list[ast.stmt]) -> str:
        for statement in body:
            end = self.statement(statement)
            if end != "next":
                return end
        return "next"

    def statement(self, node: ast.stmt) -> str:  # noqa: C901, PLR0911 - one line for each kind
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.local[node.name] = Method(node, self.method.owner, self.method.file, self.method.name)
                self.env["#functions"] = self.local
                return "next"
            case ast.If():
                return self.branch(node)
            case ast.While() | ast.For() | ast.AsyncFor():
                return self.loop(node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.expression(item.context_expr)
                return self.run(node.body)
            case ast.Try():
                return self.attempt(node)
            case ast.Return():
                self.expression(node.value)
                self.note("return", "return", node, self.reading.text(node.value) if node.value else "None")
                return "return"
            case ast.Raise():
                self.note("raise", "raise", node)
                return "raise"
            case ast.Continue():
                return "continue"
            case ast.Break():
                return "break"
            case ast.Assert():
                self.expression(node.test)
                return "next"
        self.plain(node)
        return "next"

    def plain(self, node: ast.stmt) -> None:
        """Anything without statements inside."""
        value = getattr(node, "value", None)
        if isinstance(value, ast.expr):
            self.expression(value)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.assign(target, node.value, node)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, node.value, node)
        elif isinstance(node, ast.AugAssign):
            self.expression(node.target)
            operator = type(node.op).__name__
            self.note("store", self.reading.text(node.target), node, f"{operator} {self.reading.text(node.value)}")
            if isinstance(node.target, ast.Name):
                self.env.pop(node.target.id, None)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                self.note("delete", self.reading.text(target), node)

    def assign(self, target: ast.expr, value: ast.expr, node: ast.AST) -> None:
        if isinstance(target, ast.Tuple):
            for number, part in enumerate(target.elts):
                if isinstance(part, ast.Name):
                    self.env[part.id] = f"{self.reading.text(value)}[{number}]"
                elif not isinstance(part, ast.Starred):
                    self.note("store", self.reading.text(part), node, self.reading.text(value))
        elif isinstance(target, ast.Name):
            self.env[target.id] = self.reading.held(value)
        else:
            self.expression(target)
            self.note("store", self.reading.text(target), node, self.reading.text(value))

    def branch(self, node: ast.If) -> str:
        self.expression(node.test)
        truth = self.reading.truth(node.test)
        if truth is not UNDECIDED:
            return self.run(node.body if truth else node.orelse)
        guard = self.reading.text(node.test)
        before, env = self.guards, dict(self.env)
        met, unmet = (self.reading.condition(node.test, wanted=wanted) for wanted in (True, False))
        self.guards = (*before, *met)
        then = self.run(node.body)
        past_then, after_then, self.env = self.guards, self.env, env
        self.guards = (*before, *unmet)
        other = self.run(node.orelse)
        if then == "next" and other == "next":
            self.env = {k: v for k, v in self.env.items() if after_then.get(k, UNDECIDED) == v}
            # A branch inside that ended: what follows runs in some cases only, and no one condition says which.
            leaves = past_then != (*before, *met) or self.guards != (*before, *unmet)
            self.guards = (*before, (f"past a way out below: {guard}", True)) if leaves else before
            return "next"
        if then == "next":
            self.env, self.guards = after_then, past_then
            return "next"
        if other == "next":
            return "next"  # with the condition not met: what follows runs only then
        self.guards = before
        return then if then == other else "return"

    def loop(self, node: ast.While | ast.For | ast.AsyncFor) -> str:
        before = self.guards
        if isinstance(node, ast.While):
            self.expression(node.test)
            guard = f"while {self.reading.text(node.test)}"
        else:
            self.expression(node.iter)
            guard = f"for {self.reading.text(node.iter)}"
            for part in ast.walk(node.target):
                if isinstance(part, ast.Name):
                    self.env[part.id] = f"each {self.reading.text(node.iter)}"
        for name in _assigned(node):
            if not isinstance(node, ast.While) and name in _names(node.target):
                continue
            self.env.pop(name, None)
        self.guards = (*before, (guard, True))
        self.run(node.body)
        leaves = any(isinstance(n, ast.Return) for n in _own(node))
        self.guards = (*before, (f"past a return below: {guard}", True)) if leaves else before
        self.run(node.orelse)
        return "next"

    def attempt(self, node: ast.Try) -> str:
        before, env = self.guards, dict(self.env)
        end = self.run(node.body)
        if end == "next":
            end = self.run(node.orelse)
        for name in _assigned(ast.Module(node.body, [])):
            env.pop(name, None)  # how far the body came is not known
        for handler in node.handlers:
            after, self.env = self.env, dict(env)
            self.guards = (*before, ("an exception", True))
            caught = self.run(handler.body)
            if caught == "next" and end == "next":
                self.env = {k: v for k, v in self.env.items() if after.get(k, UNDECIDED) == v}
            elif caught != "next":
                self.env = after
            end = "next" if caught == "next" else end
        self.guards = before
        last = self.run(node.finalbody)
        return last if last != "next" else end

    def expression(self, node: ast.AST | None) -> None:
        """Every call in an expression, inner ones first, as Python evaluates them."""
        if node is None:
            return
        for call, guards in _calls(node, self.reading):
            kept = self.guards
            self.guards = (*kept, *guards)
            self.call(call)
            self.guards = kept

    def call(self, node: ast.Call) -> None:
        name = self.reading.text(node.func)
        arguments = {
            **{str(i): self.reading.held(a) for i, a in enumerate(node.args)},
            **{k.arg: self.reading.held(k.value) for k in node.keywords if k.arg},
        }
        what: Method | str | None = self.local.get(name)
        if what is None:
            what = self.walk.decide(name, self.method)
        if what == "skip":
            return
        if isinstance(what, Method):
            inside = _bound(what, node, self.reading)
            if what.within:
                inside = {**self.env, **inside}
            self.walk.function(what, inside, self.guards)
            return
        self.note("call", name, node, self.reading.text(node), arguments)

    def note(
        self, kind: str, name: str, node: ast.AST, text: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        place = self.method.at(node)
        self.walk.events.append(
            Event(kind, name, self.guards, place, self.walk._stack, node, text, arguments or {})  # noqa: SLF001 - its own
        )


def _calls(node: ast.AST, reading: Reading) -> Iterator[tuple[ast.Call, tuple[Guard, ...]]]:
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.BoolOp):
        yield from _calls_of_operands(node, reading)
        return
    if isinstance(node, ast.IfExp):
        yield from _calls(node.test, reading)
        truth = reading.truth(node.test)
        for part, wanted in ((node.body, True), (node.orelse, False)):
            if truth is UNDECIDED or bool(truth) is wanted:
                guard = reading.condition(node.test, wanted=wanted) if truth is UNDECIDED else ()
                yield from ((call, (*guard, *more)) for call, more in _calls(part, reading))
        return
    loops = isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
    for child in ast.iter_child_nodes(node):
        guard = (("for a comprehension", True),) if loops else ()
        yield from ((call, (*guard, *more)) for call, more in _calls(child, reading))
    if isinstance(node, ast.Call):
        yield node, ()


def _calls_of_operands(node: ast.BoolOp, reading: Reading) -> Iterator[tuple[ast.Call, tuple[Guard, ...]]]:
    """The second operand of `and` is evaluated where the first is true, of `or` where it is false."""
    wanted = isinstance(node.op, ast.And)
    guards: tuple[Guard, ...] = ()
    for operand in node.values:
        yield from ((call, (*guards, *more)) for call, more in _calls(operand, reading))
        truth = reading.truth(operand)
        if truth is UNDECIDED:
            guards = (*guards, *reading.condition(operand, wanted=wanted))
        elif bool(truth) is not wanted:
            return


def _bound(method: Method, node: ast.Call, reading: Reading) -> Env:
    """What the parameters of `method` hold in this call."""
    arguments = method.node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if method.owner and not method.within and names:
        names = names[1:]  # self
    env: Env = {}
    for name, default in zip(reversed(arguments.args), reversed(arguments.defaults), strict=False):
        env[name.arg] = reading.held(default)
    for name, default_of in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default_of is not None:
            env[name.arg] = reading.held(default_of)
    env.update({name: reading.held(value) for name, value in zip(names, node.args, strict=False)})
    env.update({k.arg: reading.held(k.value) for k in node.keywords if k.arg})
    return env


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _assigned(node: ast.AST) -> set[str]:
    """Names that a loop assigns: they hold this round what an earlier round left in them."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement, without those of functions inside it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.Lambda):
            yield from _own(child)


def functions(node: Function) -> Iterator[Function]:
    """The functions inside a function, however deep."""
    yield from (n for n in ast.walk(node) if isinstance(n, Function) and n is not node)
