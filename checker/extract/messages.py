"""Which function of the scheduler answers which message, as its dispatcher's table says."""

from __future__ import annotations

import ast

from checker.extract.facts import Findings
from checker.extract.source import Method
from checker.extract.words import SCHEDULER

MESSAGE = "message"
"""What the handlers' parameter is called here, whatever it is called there."""


def handler(found: Findings, message: str) -> Method | None:
    """The function that is called for a message of this type; None where there is none, or where it is not plain."""
    table = found.method(SCHEDULER, "init_request_dispatcher")
    for node in ast.walk(table.node) if table else ():
        if isinstance(node, ast.Tuple) and len(node.elts) == 2 and isinstance(node.elts[0], ast.Name):  # noqa: PLR2004
            type_, function = node.elts
            if isinstance(type_, ast.Name) and type_.id == message and isinstance(function, ast.Attribute):
                return found.called(ast.unparse(function), table) if table else None
    return None


def bound(method: Method) -> dict[str, str]:
    """What the parameters of a handler hold: the message, under our name for it."""
    parameters = [a.arg for a in method.node.args.args][1:]
    return {parameters[0]: MESSAGE} if parameters else {}
