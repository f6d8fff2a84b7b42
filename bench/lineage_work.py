"""What the lineage does in a pass, without an engine: on any device, for times and to compare devices."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from engine_hooks.lineage.pages import Pages, Shape
from engine_hooks.lineage.stored import Stored
from engine_hooks.lineage.tracker import Held, Lineage
from engine_hooks.lineage.words import Reading

RUNS = 50


@dataclass(frozen=True)
class Load:
    """A batch of requests, each of which holds so many tokens."""

    requests: int
    tokens: int
    page_size: int


class Work:
    """A pool on a device, filled by a batch of requests that read nothing in common."""

    def __init__(self, load: Load, device: str) -> None:
        self.load, self.device = load, device
        size = load.page_size
        per_row = -(-load.tokens // size) + 1
        pages = load.requests * per_row
        order = torch.randperm(pages, generator=torch.Generator().manual_seed(5)) + 1
        table = (order[:, None] * size + torch.arange(size)).view(load.requests, per_row * size)
        self.table = table.to(torch.int32).to(device)
        self.found: list[Reading] = []
        self.ours = Lineage(Pages(Shape(pages, size, load.requests, pages), device), Stored(), self.found.append)
        self.rows = torch.arange(load.requests).to(device)
        self.held = [Held(row, row, load.tokens) for row in range(load.requests)]
        slots = self.table[:, : load.tokens].flatten().long()
        empty = [Held(row, row, 0) for row in range(load.requests)]
        self.ours.extend(self.table, empty, self.rows, slots, [load.tokens] * load.requests)
        self.next = self.table[:, load.tokens].long()

    def decode(self) -> None:
        """A token for each."""
        self.ours.decode(self.table, lambda: self.held, self.rows, self.next)

    def decode_a_page(self) -> None:
        """So many tokens for each that each begins one page."""
        for _ in range(self.load.page_size):
            self.decode()

    def read_again(self) -> None:
        """All that they hold is read, as after a load, or where as many requests begin with cached prefixes."""
        for one in self.held:
            self.ours.adopted(one.row)
        self.decode()
        self.ours.judge()


def microseconds(work: Callable[[], None], finish: Callable[[], None] = lambda: None, runs: int = RUNS) -> float:
    """Median CPU time of the calls themselves: what they cost the scheduler's thread. `finish` waits for a device."""
    for _ in range(5):
        work()
    taken = []
    for _ in range(runs):
        finish()
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return median(taken) * 1e6


def readings(device: str, seed: int, steps: int = 40) -> list[Reading]:
    """What is read in a random run of a small engine: the same on every device."""
    rng = random.Random(seed)  # noqa: S311 - runs, not secrets
    size, found = rng.choice([1, 3, 16]), list[Reading]()
    pages, rows = 64, 4
    ours = Lineage(Pages(Shape(pages, size, rows, pages), device), Stored(), found.append)
    pages_of = [[rng.randrange(1, pages) for _ in range(8)] for _ in range(rows)]
    slots = [[page * size + i for page in row for i in range(size)] for row in pages_of]
    table = torch.tensor(slots, dtype=torch.int32).to(device)
    epoch = 0
    for step in range(steps):
        row, length = rng.randrange(rows), rng.randrange(7 * size)
        held, index = [Held(row, step, length)], torch.tensor([row]).to(device)
        page = torch.arange(size) + rng.randrange(1, pages) * size
        match rng.randrange(6):
            case 0:
                epoch += 1
                ours.loaded(epoch, flush_asked=rng.choice([True, False]))
            case 1:
                ours.to_host(page.to(device), page)
            case 2:
                ours.to_device(page, page.to(device))
            case 3:
                ours.from_storage(None, ["key"], page)
            case 4:
                number = rng.randrange(1, size + 1)
                ours.extend(table, held, index, table[row, length : length + number].long(), [number])
            case _:
                ours.decode(table, lambda held=held: held, index, table[row, length : length + 1].long())
    if device != "cpu":
        torch.get_device_module(device).synchronize()
    ours.judge()
    return found
