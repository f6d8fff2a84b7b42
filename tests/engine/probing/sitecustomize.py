"""Reached only through PYTHONPATH, in engines of `test_stress`: every probe of quiesce does what no probe should.

QUIESCE_TEST_PROBES names it: `raises`, `hogs` (asks for more memory than there is) or `sleeps`. It begins when the
test has put a file `now` into the folder QUIESCE_TEST_PROBES_AT, so that the engine has started as it does otherwise.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

SLEEP_SECONDS = 1.1


def misbehave(how: str) -> None:
    if how == "raises":
        raise RuntimeError("planted")
    if how == "hogs":
        bytearray(1 << 60)
    time.sleep(SLEEP_SECONDS)


def install(how: str, folder: Path) -> None:
    from engine_hooks.sglang.probes_session import Session  # noqa: PLC0415 - only where it is asked for

    guarded = Session.guarded

    def spoiled(self: Any, hook: str, function: Any, *args: Any) -> None:
        def probe(*given: Any) -> Any:
            if (folder / "now").exists():
                misbehave(how)
            return function(*given)

        guarded(self, hook, probe, *args)

    Session.guarded = spoiled  # type: ignore[method-assign]


if "QUIESCE_TEST_PROBES" in os.environ:
    install(os.environ["QUIESCE_TEST_PROBES"], Path(os.environ["QUIESCE_TEST_PROBES_AT"]))
