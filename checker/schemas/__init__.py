"""The JSON schemas of `--json` answers, records and traces. `python -m checker.compile` writes them too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from checker.diff.results import DiffReport
from checker.doctor import results as doctor
from checker.explain import Explanation
from checker.extract.results import ExtractReport
from checker.manifest import Manifest
from checker.replay import results as replay
from checker.reproduce.results import Reproductions
from checker.results import Report
from engine_hooks.record import Line
from engine_hooks.trace import TraceLine

FOLDER = Path(__file__).parent


def generated() -> Mapping[str, str]:
    """File name to text, for each answer."""
    answers: Mapping[str, Any] = {
        "verify-1": Report,
        "explain-1": Explanation,
        "certificate-1": Manifest,
        "doctor-1": doctor.Report,
        "extract-1": ExtractReport,
        "diff-1": DiffReport,
        "record-1": Line,
        "reproduce-1": Reproductions,
        "replay-1": replay.Report,
        "trace-1": TraceLine,
    }
    return {f"{name}.json": _text(kind) for name, kind in answers.items()}


def _text(kind: Any) -> str:  # noqa: ANN401 - a msgspec struct
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(kind)), indent=2).decode() + "\n"
