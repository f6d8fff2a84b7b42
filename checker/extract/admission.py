"""What an admission asks about a waiting request's lookup, and whom a launch leaves out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from checker.extract.facts import Findings
from checker.extract.settings import default
from checker.extract.source import Method
from checker.extract.words import POLICY, SCHEDULER, TREE

_ADMITS = "_get_new_batch_prefill_raw"
_POLL, _LOSS = "check_prefetch_progress", "_prefetch_after_device_hit_loss"
_FINISHING = "_reqs_finishing_inflight"
_FLAG = "enable_skip_finishing_decode"


def admission(found: Findings) -> None:
    """The facts of `lookup_wait`, and what belongs to them in `prefetch` and `loops`."""
    admits = found.method(SCHEDULER, _ADMITS)
    if admits is None:
        found.doubt(("lookup_wait",), f"there is no {SCHEDULER[1]}.{_ADMITS}")
        found.doubt(("prefetch", "again_on_loss"), f"there is no {SCHEDULER[1]}.{_ADMITS}")
        return
    _waits(found, admits)
    _losses(found, admits)


def skips_finishing(found: Findings, loop: Method) -> None:
    """Whether this loop launches no batch of requests that all end with the queued result."""
    key = ("loops", "overlap", "skips_finishing")
    sets = [n for n in ast.walk(loop.node) if isinstance(n, ast.Assign) and _attribute(n.targets[0]) == _FLAG]
    updates, asks = found.method(SCHEDULER, "update_running_batch"), found.method(SCHEDULER, _FINISHING)
    if not sets or asks is None or updates is None:
        found.say(key, value=False, place=loop.place)
        return
    running = found.value("loops", "overlap", "running") or []
    if not found.value("loops", "overlap", "result_queue") or [s for s in running if s in {"launch", "process"}][
        :1
    ] != ["launch"]:
        found.say(key, value=False, place=loop.place)
        found.doubt(key, "the loop sets the flag, and queues no result behind a launch", loop)
        return
    found.say(key, ast.unparse(sets[0].value) == "True", loop.at(sets[0]))
    texts = ast.unparse(asks.node), ast.unparse(updates.node)
    if _FLAG not in texts[0] or "next_output_finishes_by_length" not in texts[0]:
        found.doubt(key, "which requests are left out is not decided by the flag and their length", asks.place)
    # `batch` holds who is left out in its own variable: the call, and the filter that takes it.
    if f"self.{_FINISHING}(" not in texts[1] or "reqs_to_exclude=finishing_reqs" not in texts[1]:
        found.doubt(key, "nobody is left out of the running batch", updates.place)


def _waits(found: Findings, admits: Method) -> None:
    polls = found.method(TREE, _POLL)
    if polls is None or list(_skips(admits, _POLL)) != [False]:
        found.doubt(("lookup_wait",), f"a request whose {_POLL} is not done is not plainly passed over", admits)
        return
    found.say(("lookup_wait", "source"), polls.place.source, polls.place)
    _deadline(found)
    # The scope knows one pool.
    found.say(("lookup_wait", "side_pool"), value=False, place=polls.place)
    revoke, key = found.method(TREE, "revoke_pending_prefetch"), ("lookup_wait", "revoke_ends")
    retire = found.method(TREE, "_retire_ongoing_prefetch")
    if revoke is None:
        found.doubt(key, f"there is no {TREE[1]}.revoke_pending_prefetch", polls)
        return
    bodies = [
        m.node
        for m in (revoke, retire)
        if m and (m is revoke or "_retire_ongoing_prefetch(" in ast.unparse(revoke.node))
    ]
    found.say(key, any(_ends(node) for node in bodies), revoke.place)


def _deadline(found: Findings) -> None:
    """What the time-out of the default policy ends."""
    key = ("lookup_wait", "deadline")
    policy = default(found, POLICY)
    expired = found.method(TREE, "_prefetch_deadline_expired")
    if policy is None or policy[0] == "best_effort":
        found.doubt(key, "the default policy lets no request wait, or is not found", policy[1] if policy else None)
    elif policy[0] != "timeout":
        found.say(key, "nothing", policy[1])
    elif expired is None:
        found.doubt(key, f"there is no {TREE[1]}._prefetch_deadline_expired")
    else:
        landed = any(
            isinstance(n, ast.If)
            and "completed_tokens" in ast.unparse(n.test)
            and ast.unparse(n.body[-1]) == "return False"
            for n in expired.node.body
        )
        found.say(key, "main" if landed else "all", expired.place)


def _losses(found: Findings, admits: Method) -> None:
    key, looks = ("prefetch", "again_on_loss"), found.method(SCHEDULER, _LOSS)
    asked = list(_skips(admits, _LOSS))
    found.say(key, asked == [True] and looks is not None, looks.place if looks and asked else admits.place)
    if asked not in ([], [True]):
        found.doubt(key, f"a request that {_LOSS} looks up again is not plainly passed over", admits)
    if looks is not None and asked and "self._retry_storage_prefetch(" not in ast.unparse(looks.node):
        found.doubt(key, "a lost prefix is not looked up again as a retry is", looks)


def _skips(method: Method, name: str) -> Iterator[bool]:
    """Each `if` that passes over a request by the answer of this call: whether it is passed over where that is true."""
    given = {
        node.targets[0].id
        for node in ast.walk(method.node)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _called(node.value) == name
    }
    for node in ast.walk(method.node):
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Continue):
            yield from _asked(node.test, name, given)


def _asked(test: ast.expr, name: str, given: set[str], *, wanted: bool = True) -> Iterator[bool]:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _asked(inner, name, given, wanted=not wanted)
        case ast.BoolOp(values=parts):
            for part in parts:
                yield from _asked(part, name, given, wanted=wanted)
        case ast.Name(id=variable) if variable in given:
            yield wanted
        case _ if _called(test) == name:
            yield wanted


def _called(node: ast.expr) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def _attribute(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


def _ends(node: ast.AST) -> bool:
    """Whether the entry leaves `ongoing_prefetch`."""
    text = ast.unparse(node)
    return "del self.ongoing_prefetch[" in text or "self.ongoing_prefetch.pop(" in text
