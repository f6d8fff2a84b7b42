"""Where the command `checker` starts. Ctrl-C and the streams are looked after before anything else is imported."""

from __future__ import annotations

from checker.interrupts import answer_interrupts


def main() -> None:
    """Run the command; ends the process with its exit code."""
    answer_interrupts()
    from checker.streams import guard_streams  # noqa: PLC0415

    guard_streams()
    from checker.cli import main as command  # noqa: PLC0415

    command(prog_name="checker")


if __name__ == "__main__":
    main()
