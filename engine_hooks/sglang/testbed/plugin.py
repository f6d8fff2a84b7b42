"""The entry point `quiesce_testbed`, which SGLang calls in every process that it starts.

Without the variable QUIESCE_TESTBED it does nothing at all: installing quiesce must change no engine that was not
started through the testbed.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from engine_hooks.sglang.testbed import control


def register() -> None:
    """Put the testbed in place in a scheduler's process, if the testbed started it.

    Raises:
        Exception: whatever went wrong. SGLang logs a failing plugin and carries on; so the launching side is told
            too (`control.report_failure`), which then refuses to go on.
    """
    directory = os.environ.get(control.VARIABLE)
    # Only a process that runs a scheduler has a device side; the others should not load one for this.
    if not directory or "sglang.srt.managers.scheduler" not in sys.modules:
        return
    try:
        # Imports torch and SGLang, which a process outside the testbed must not pay for.
        from engine_hooks.sglang.testbed import substitute  # noqa: PLC0415

        substitute.install(Path(directory))
    except Exception:
        control.report_failure(Path(directory), traceback.format_exc())
        raise
