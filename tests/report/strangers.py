"""Results and reports that are made up, of what a file of a stranger may hold too."""

from checker.results import EngineInfo, Report, Result, Trace, TraceStep

PLACE = {"mode": "retract", "storage": "file", "write_policy": "write_through", "host_mode": "cache", "ranks": 1}


def made_up(verdict, **more):
    """One result; what is not given is harmless."""
    fields = {"property": "idle-is-true", "loop": "normal", "configuration": PLACE, "verdict": verdict, "scope": "none"}
    fields |= {"method": "undecided", "reason": "the solver gave up", "ledger": None, "seconds": 0.5}
    return Result(**fields | more)


def report_of(*results, verdict, complete=True, engine=None):
    engine = engine or EngineInfo("sglang", "0.5.23", "sglang-0.5.23", "bundled", [])
    return Report(1, engine, list(results), verdict, "0" * 16, "z3 0", 0, complete)


def hostile_report(text):
    """A report that says `text` wherever a name or a sentence may stand."""
    step = TraceStep(text, text, text, {text: 1}, {text: True, f"write_through_{text}": 2})
    done = TraceStep(f"DeviceDone({text}.{text})", text, f"srt/{text}.py:{text}", {"admitted": 1}, {text: 3})
    place = dict.fromkeys(PLACE, text)
    base = {"property": text, "loop": text, "configuration": place, "scope": text, "method": text, "reason": text}
    wrong = made_up("refuted", **base, ledger=text, trace=Trace([step, done], 1), engine_function=text)
    proof = made_up("proved", **base | {"reason": f"rank ({text}, ~{text}); ({text})"}, certificate=text)
    engine = EngineInfo(text, text, text, "bundled", [text])
    return report_of(wrong, proof, verdict="refuted", engine=engine)
