"""Known differences: what real engines were seen to do and the spec does not say. None is taken for granted.

A trace with one of them diverges, unless it is allowed by name; then each use is counted and said.
"""

from __future__ import annotations

from collections.abc import Mapping

LOST = "looks-up-lost-prefix"
LANDS = "lands-in-its-reap"
IDLES = "launches-an-idle-batch"
DIFFERENCES: Mapping[str, str] = {
    LOST: "a pass looks up again what a waiting request lost by an eviction (_prefetch_after_device_hit_loss);"
    " the spec, which does not model memory, only what it lost by a flush",
    LANDS: "a reap submits copies to the host, then counts those that have landed (check_hicache_events): one may land"
    " in between; in the spec nothing lands within a pass",
    IDLES: "a rank of DP attention on which nobody runs launches a batch of none while another has work"
    " (prepare_mlp_sync_batch); the spec has no ranks that step together",
}
"""Name to what is different."""
