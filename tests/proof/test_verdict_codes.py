"""The five verdicts, the exit code of each, and which is the worst."""

from __future__ import annotations

from itertools import permutations

import pytest

from checker.results import Result, overall
from checker.verdict import Verdict, exit_code, worst

PROVED, REFUTED = Verdict.PROVED, Verdict.REFUTED
BOUNDED, UNKNOWN, NOT_APPLICABLE = Verdict.BOUNDED, Verdict.UNKNOWN, Verdict.NOT_APPLICABLE


def test_only_a_proof_passes() -> None:
    assert [v for v in Verdict if v.passes] == [PROVED]


@pytest.mark.parametrize(
    ("verdict", "code", "junit"),
    [
        (PROVED, 0, None),
        (REFUTED, 1, "failure"),
        (BOUNDED, 3, "error"),
        (UNKNOWN, 3, "error"),
        (NOT_APPLICABLE, 3, "skipped"),
    ],
)
def test_codes(verdict: Verdict, code: int, junit: str | None) -> None:
    assert (exit_code(verdict), verdict.junit) == (code, junit)


def test_values_are_those_of_the_json() -> None:
    assert [v.value for v in Verdict] == ["proved", "refuted", "bounded", "unknown", "not-applicable"]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], NOT_APPLICABLE),
        ([NOT_APPLICABLE], NOT_APPLICABLE),
        ([NOT_APPLICABLE, PROVED], PROVED),
        ([PROVED, BOUNDED], BOUNDED),
        ([BOUNDED, UNKNOWN], UNKNOWN),
        ([UNKNOWN, REFUTED, PROVED], REFUTED),
        (list(Verdict), REFUTED),
    ],
)
def test_the_worst_counts(verdicts: list[Verdict], expected: Verdict) -> None:
    assert {worst(order) for order in permutations(verdicts)} == {expected}


def _result(verdict: Verdict) -> Result:
    return Result("a-property", "normal", {}, verdict.value, "none", "none", "", None, 0.0)


def test_interrupted_run_is_never_proved() -> None:
    assert overall([_result(PROVED)]) is PROVED
    assert overall([_result(PROVED)], complete=False) is UNKNOWN
    assert overall([], complete=False) is UNKNOWN
    assert overall([_result(PROVED), _result(REFUTED)], complete=False) is REFUTED
