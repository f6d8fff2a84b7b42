"""The KV page census against SGLang's own `_check_kv_page_invariants`: the same pools, the same device, one process.

Pools of 1 and 4 million slots of SGLang's own classes, half of them owned by requests, a quarter cached, a quarter
free, in the order that a long run leaves (shuffled) and in the order of a fresh engine. Both read the live objects:
SGLang's check its free list and rows, the census those and the tree too. Medians of RUNS, taken in turns. Ends with 1
where a ratio misses GOAL, or where one of the two does not see a planted defect.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import SimpleNamespace

import torch
from measure import facts, median, table, timed

from engine_hooks.census import choose, reference
from engine_hooks.census.words import Census, Holdings
from engine_hooks.sglang.census_pools import holdings_of
from engine_hooks.sglang.testbed.launch import standin_paths

if find_spec("torchvision") is None:  # on a machine without a GPU SGLang needs the testbed's stand-ins
    sys.path.extend(standin_paths())

from census_peer import Pools, pools

RUNS = 5
GOAL = 5.0
SIZES = (1_000_000, 4_000_000)
PAGE_SIZES = (1, 16)


def synchronised(work: Callable[[], object], device: str) -> float:
    """Seconds until the device has done it."""

    def all_of_it() -> None:
        work()
        if device == "cuda":
            torch.cuda.synchronize()

    return timed(all_of_it).seconds


def holdings(scheduler: SimpleNamespace) -> Holdings:
    """What the hook reads."""
    found = holdings_of(scheduler)
    if found is None:
        raise RuntimeError("these pools are in the middle of nothing")
    return found


def planted(pool: Pools, take: Callable[[Holdings], Census]) -> bool:
    """Whether both see a page that is free and owned; the pools are as before afterwards."""
    allocator = pool.scheduler.token_to_kv_pool_allocator
    free = allocator.free_pages
    owned = pool.scheduler.req_to_token_pool.req_to_token[1, :1].long() // allocator.page_size
    allocator.free_pages = torch.cat((free, owned))
    try:
        pool.checker._check_kv_page_invariants()  # noqa: SLF001 - the peer
        peer = False
    except ValueError as error:
        peer = "use-after-free" in str(error)
    kinds = [defect.kind for defect in take(holdings(pool.scheduler)).defects]
    allocator.free_pages = free
    return peer and kinds == ["free_and_held"]


def implementations(device: str) -> dict[str, Callable[[Holdings], Census]]:
    """By name; on a GPU the kernel and plain torch."""
    chosen = choose.implementation(device)
    named = {"torch": reference.take}
    return named if chosen is reference.take else {"triton": chosen} | named


def measured(slots: int, page_size: int, device: str, *, shuffled: bool) -> Iterator[tuple[list[str], bool]]:
    """One row of the table for each implementation, and whether it is as it should be."""
    pool = pools(slots, page_size, device, shuffled=shuffled)
    for name, take in implementations(device).items():
        clean = take(holdings(pool.scheduler)).conserved
        both = planted(pool, take)
        peer, ours = [], []
        for _ in range(RUNS):
            peer.append(synchronised(pool.checker._check_kv_page_invariants, device))  # noqa: SLF001 - the peer
            ours.append(synchronised(lambda take=take: take(holdings(pool.scheduler)), device))
        ratio = median(peer) / median(ours)
        row = [f"{slots:,}", str(page_size), "shuffled" if shuffled else "in order", name]
        row += [f"{median(s) * 1e3:.2f} ({min(s) * 1e3:.2f} to {max(s) * 1e3:.2f})" for s in (peer, ours)]
        held = ratio >= GOAL or (device == "cuda" and name == "torch")
        yield [*row, f"{ratio:.1f}", "yes" if both and clean else "NO"], held and both and clean


def main() -> int:
    """Print the table; 0 where all goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(options.threads)
    device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    print(*facts(), f"torch   {torch.__version__}, {torch.get_num_threads()} threads, device {device}", sep="\n")
    rows, good = [], True
    for slots in SIZES:
        for page_size in PAGE_SIZES:
            for shuffled in (True, False):
                for row, held in measured(slots, page_size, options.device, shuffled=shuffled):
                    rows.append(row)
                    good &= held
    header = ["slots", "page", "free list", "census", "SGLang's check, ms", "census, ms", "ratio", "both see a plant"]
    print("", table(header, rows), f"goal: {GOAL:g} times faster; medians of {RUNS}, and ranges", sep="\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
