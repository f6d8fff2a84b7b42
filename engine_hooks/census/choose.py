"""Which implementation takes the census of a pool on a given device."""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine_hooks.census import reference
from engine_hooks.census.words import Census, Holdings

logger = logging.getLogger("quiesce")


def implementation(device: str) -> Callable[[Holdings], Census]:
    """The kernel for `cuda` where Triton can be had, else plain torch. `device`: torch's name of the kind of device."""
    if device != "cuda":
        return reference.take
    try:
        from engine_hooks.census import kernel  # noqa: PLC0415 - Triton is not everywhere
    except ImportError as error:
        logger.warning("quiesce: the census runs without its kernel: %s", error)
        return reference.take
    return kernel.take
