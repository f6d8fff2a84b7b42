"""By which profile a trace is judged. An engine's hooks know one profile, in whose terms some loops have another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spec.errors import UnknownNameError
from spec.profile import bundled_profiles

if TYPE_CHECKING:
    from engine_hooks.trace import TraceHeader

_OF_LOOP: Mapping[str, str] = {"prefill": "prefill", "decode": "decode", "pp": "no-flag", "pdmux": "no-flag"}
"""First word of a loop to the bundled profile that has it, beside that of the engine."""


def profile_name(header: TraceHeader) -> str:
    """The bundled profile that has the loop of a trace: the one that its header names, or a difference of that.

    Raises UnknownNameError: a header must not make us open a file.
    """
    bundled = bundled_profiles()
    if header.profile not in bundled:
        raise UnknownNameError("profile", header.profile, bundled)
    kind = _OF_LOOP.get(header.loop.partition("-")[0])
    own = f"{header.profile}-{kind}"
    return own if kind and own in bundled else header.profile
