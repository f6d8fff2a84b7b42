"""Known differences: what real engines were seen to do and the spec does not say. Each use is counted and said.

A trace with one of them diverges, unless it is allowed by name, or the header says that there are other ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_hooks.trace import TraceHeader

LOST = "looks-up-lost-prefix"
LANDS = "lands-in-its-reap"
ARRIVES = "arrives-in-its-pass"
IDLES = "launches-an-idle-batch"
WAITS = "waits-for-other-ranks"
CHUNKS = "launches-the-next-chunk"
DIFFERENCES: Mapping[str, str] = {
    LOST: "a pass looks up again what a waiting request lost by an eviction (_prefetch_after_device_hit_loss);"
    " the spec, which does not model memory, only what it lost by a flush",
    LANDS: "a reap submits copies to the host, then counts those that have landed (check_hicache_events): one may land"
    " in between; in the spec nothing lands within a pass",
    ARRIVES: "a decode worker asks for the KV of a request, then polls for it in the same pass (process_decode_queue):"
    " it may have arrived; in the spec nothing arrives within a pass",
    IDLES: "a rank of DP attention on which nobody runs launches a batch of none while another has work"
    " (prepare_mlp_sync_batch); the spec has no ranks that step together",
    WAITS: "a rank of several reaps as many entries as have landed on all of them, or as the first stage of a pipeline"
    " has counted (_all_reduce); the spec of one rank reaps all that have landed on it",
    CHUNKS: "a pipeline launches a chunk of a prefill in each turn, while the chunk before is in flight (chunked_req);"
    " the spec has no chunks",
}
"""Name to what is different."""


def of_ranks(header: TraceHeader) -> frozenset[str]:
    """Those that need no leave, since the header says that there are other ranks.

    A later stage of a pipeline reaps what the first has counted, and waits in its reap until it has landed here.
    """
    if header.rank.get("pp", 0):
        return frozenset((WAITS, LANDS))
    return frozenset((WAITS,)) if header.sizes.get("attention", 1) > 1 else frozenset()
