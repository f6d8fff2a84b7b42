"""JUnit XML, as Jenkins and GitLab read it: one test case for a property in a configuration. Only `proved` passes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from xml.etree import ElementTree as ET

from checker.results import Report, Result
from checker.story import tell
from checker.streams import visible
from checker.verdict import Verdict


def junit(report: Report) -> str:
    """The file. An interrupted run has one more test case, which is an error: what is missing does not pass."""
    root = ET.Element("testsuites", name="checker verify")
    for loop, results in groupby(report.results, key=lambda r: r.loop):
        _suite(root, report, f"{report.engine.profile} loop {loop}", list(results))
    if not report.complete or not report.results:
        _unfinished(root, report)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, report: Report, name: str, results: Sequence[Result]) -> None:
    kinds = [Verdict(r.verdict).junit for r in results]
    counts = {"failures": kinds.count("failure"), "errors": kinds.count("error"), "skipped": kinds.count("skipped")}
    seconds = sum(r.seconds for r in results)
    suite = _element(root, "testsuite", name=name, tests=len(results), **counts, time=f"{seconds:.3f}")
    properties = _element(suite, "properties")
    engine = report.engine
    facts = {
        "engine": f"{engine.name} {engine.version}",
        "remedies": ", ".join(engine.remedies) or "none",
        "spec": report.spec_digest,
        "solver": report.solver,
        "seed": report.seed,
    }
    for key, value in facts.items():
        _element(properties, "property", name=key, value=value)
    for result in results:
        _case(suite, report, result)


def _case(suite: ET.Element, report: Report, result: Result) -> None:
    settings = result.configuration
    place = f"{report.engine.profile}.{result.loop}.{settings['mode']}.{settings['storage']}"
    case = _element(suite, "testcase", classname=place, name=result.property, time=f"{result.seconds:.3f}")
    kind = Verdict(result.verdict).junit
    if kind == "skipped":
        _element(case, kind, message=result.reason)
    elif kind is not None:
        said = _element(case, kind, type=result.verdict, message=f"{result.verdict}: {result.reason}")
        said.text = visible("\n".join(tell(result)))
    else:
        _element(case, "system-out").text = visible(f"proved by {result.method}: {result.reason}")


def _unfinished(root: ET.Element, report: Report) -> None:
    what = "nothing was decided" if report.complete else "interrupted; the rest was not decided"
    suite = _element(root, "testsuite", name="the run itself", tests=1, failures=0, errors=1, skipped=0)
    case = _element(suite, "testcase", classname=report.engine.profile, name="every result is known")
    _element(case, "error", type="unknown", message=what)


def _element(parent: ET.Element, tag: str, **attributes: object) -> ET.Element:
    """An element whose text may come from a file: XML has no place for most control characters."""
    return ET.SubElement(parent, tag, {name: visible(str(value)) for name, value in attributes.items()})
