"""Known differences: what real engines were seen to do and the spec does not say. None is taken for granted.

A trace with one of them diverges, unless it is allowed by name; then each use is counted and said.
"""

from __future__ import annotations

from collections.abc import Mapping

WAITS = "waits-for-lookup"
LOST = "looks-up-lost-prefix"
SKIPS = "skips-finishing-decode"
DIFFERENCES: Mapping[str, str] = {
    WAITS: "a pass admits no request while each waiting one is looked up in the storage or read from it"
    " (check_prefetch_progress); the spec admits at least one",
    LOST: "a pass looks up again what a waiting request lost by a flush or an eviction"
    " (_prefetch_after_device_hit_loss); the spec retries only what was revoked",
    SKIPS: "a pass launches no batch while every running request ends with the result that waits"
    " (enable_skip_finishing_decode); the spec launches one more",
}
"""Name to what is different."""
