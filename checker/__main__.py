"""Where the command `checker` starts. Ctrl-C and the streams are looked after before anything else is imported."""

from __future__ import annotations

import sys
import traceback

from checker.interrupts import answer_interrupts


def main() -> None:
    """Run the command; ends the process with its exit code."""
    answer_interrupts()
    from checker.streams import guard_streams  # noqa: PLC0415

    guard_streams()
    try:
        from checker.cli import main as command  # noqa: PLC0415
    except Exception:  # noqa: BLE001 - whatever it is: Python's own exit code is that of a refutation
        from checker.verdict import EXIT_INTERNAL  # noqa: PLC0415

        traceback.print_exc()
        sys.stderr.write("checker: an internal error, and no verdict; install it anew, or report the lines above\n")
        sys.exit(EXIT_INTERNAL)

    command(prog_name="checker")


if __name__ == "__main__":
    main()
