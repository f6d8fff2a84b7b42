"""The digest of a spec: what was proved, in one word, so that hooks, certificates and traces can name it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from spec.profile import Profile

# Raised by hand when the meaning of a profile's facts changes, so that equal files do not pass for equal specs.
MODEL = 1


def spec_digest(profile: Profile) -> str:
    """Sixteen hex digits over the model's version and every fact of the profile, remedies applied included.

    Remedies and variants that are not applied are no facts of it.
    """
    raw = {key: value for key, value in profile.raw.items() if key not in ("remedies", "variants")}
    facts: dict[str, Any] = {"model": MODEL, "profile": raw, "applied": list(profile.applied)}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
