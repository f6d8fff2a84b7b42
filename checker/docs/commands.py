"""Blocks about the command: options, exit codes, the JSON that it writes, what a proof may spend."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from types import ModuleType
from typing import Any

import click

from checker import explain, manifest, results, schemas
from checker.cli import main
from checker.diff import facts as diff_facts
from checker.diff import results as diff_results
from checker.docs.blocks import Maker, table
from checker.docs.errors import DocsError
from checker.doctor import results as doctor
from checker.doctor.results import State
from checker.extract import results as extract_results
from checker.proof.system import Limits
from checker.replay import results as replay_results
from checker.reproduce import results as reproductions
from checker.verdict import EXIT_CODES, Verdict
from engine_hooks import record, trace

_WIDTH = 80
_LIMITS: Mapping[str, str] = {
    "seed": "of the solver and of the random runs",
    "work": "of one query of Z3, in its own units of work (`rlimit`); no clock is asked",
    "spacer_milliseconds": "of Spacer, the one engine that is bounded by time",
    "depth": "steps: how deep a run that breaks a claim is sought",
    "lasso": "steps: stem and loop of a fair lasso together",
    "loop": "steps: the loop of a fair lasso alone",
    "walks": "random runs that are always made; more are made where they say too little",
    "walk_length": "steps of a random run",
}


_MODULES: Mapping[str, Sequence[ModuleType]] = {
    "verify-1.json": (results,),
    "explain-1.json": (results, explain),
    "certificate-1.json": (manifest,),
    "doctor-1.json": (doctor,),
    "record-1.json": (record,),
    "replay-1.json": (replay_results,),
    "trace-1.json": (trace,),
    "extract-1.json": (extract_results,),
    "diff-1.json": (diff_results, diff_facts),
    "reproduce-1.json": (results, reproductions),
}
"""Schema to the modules of its types; of two classes of one name the last counts."""


def makers() -> Mapping[str, Maker]:
    """What can be generated about the command."""
    return {
        "commands": lambda _: "\n\n".join(_commands()),
        "exit-codes": lambda _: table(("exit code", "means"), ((str(k), v) for k, v in EXIT_CODES.items())),
        "doctor-codes": lambda _: _doctor(),
        "junit": lambda _: _junit(),
        "schemas": lambda _: "\n\n".join(_schemas()),
        "limits": lambda _: _limits(),
    }


def _commands() -> Iterator[str]:
    # Beneath the group, as when it is called: a command keeps the help option of its first context.
    group = click.Context(main, info_name="checker", **main.context_settings)
    for name, command in sorted(main.commands.items()):
        context = click.Context(command, group, name, max_content_width=_WIDTH, terminal_width=_WIDTH)
        yield f"### checker {name}"
        yield f"```text\n{command.get_help(context)}\n```"


def _doctor() -> str:
    codes = sorted({state.exit_code for state in State})
    means = {code: " or ".join(s.value for s in State if s.exit_code == code) for code in codes}
    return table(("exit code", "means"), ((str(code), text) for code, text in means.items()))


def _junit() -> str:
    rows = [(f"`{v.value}`", f"`<{v.junit}>`" if v.junit else "a test that passes") for v in Verdict]
    return table(("verdict", "in JUnit"), rows)


def _limits() -> str:
    unsaid = {field.name for field in fields(Limits)} ^ set(_LIMITS)
    if unsaid:
        raise DocsError(f"limits and their texts differ: {', '.join(sorted(unsaid))}")
    limits = Limits()
    rows = [(f"`{f.name}`", f"{getattr(limits, f.name):,}".replace(",", " "), _LIMITS[f.name]) for f in fields(Limits)]
    return table(("limit", "is", "of what"), rows)


def _schemas() -> Iterator[str]:
    for file, text in schemas.generated().items():
        notes = _notes(_MODULES.get(file, ()))
        yield f"### {file}"
        for name, one in json.loads(text).get("$defs", {}).items():
            yield f"**{name}.** {one.get('description', '')}".strip()
            if "properties" in one:
                needed, said = one.get("required", ()), notes.get(name, {})
                rows = [
                    (f"`{field}`", _type(kind), "" if field in needed else "may be left out", said.get(field, ""))
                    for field, kind in one["properties"].items()
                ]
                yield table(("field", "type", "there", "says"), rows)


def _notes(modules: Iterable[ModuleType]) -> Mapping[str, Mapping[str, str]]:
    """Class to field to the string that stands below the field in the source, which JSON schemas do not carry."""
    found: dict[str, dict[str, str]] = {}
    for module in modules:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = {
                    field.target.id: " ".join(str(below.value.value).split())
                    for field, below in pairwise(node.body)
                    if isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(below, ast.Expr)
                    and isinstance(below.value, ast.Constant)
                }
    return found


def _type(kind: Mapping[str, Any]) -> str:
    if "$ref" in kind:
        return str(kind["$ref"]).rpartition("/")[2]
    if "anyOf" in kind:
        return " or ".join(_type(one) for one in kind["anyOf"])
    if "enum" in kind:
        return " or ".join(f"`{value}`" for value in kind["enum"])
    if kind.get("type") == "array":
        return f"list of {_type(kind['items'])}" if isinstance(kind.get("items"), dict) else "list"
    if kind.get("type") == "object":
        inside = kind.get("additionalProperties")
        return f"map to {_type(inside)}" if isinstance(inside, dict) else "map"
    return str(kind.get("type", "anything"))
