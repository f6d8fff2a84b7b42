"""Points in time as a person reads them."""

from __future__ import annotations

from datetime import UTC, datetime


def utc(at: float) -> str:
    """Seconds since 1970, in UTC; as they are where no calendar has them."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"at {at}"
