"""Which weights are behind what lies in a storage: a bounded table, keyed as the engine keys its pages there.

What is not in the table is unknown: written by an earlier process or another engine, or forgotten for want of room.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from engine_hooks.lineage.words import TIER_MASK, UNSEEN

KEYS = 1 << 18
"""How many keys are remembered where nothing else is said; about 50 MB."""


class Stored:
    """Key to word. Written by the thread that writes to the storage, read by the scheduler's."""

    def __init__(self, most: int = KEYS) -> None:
        """`most`: keys that are remembered; the one used longest ago is forgotten first."""
        self._most = most
        self._words: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()
        self._backend: object = None

    def __len__(self) -> int:
        return len(self._words)

    def of(self, backend: object) -> None:
        """All that follows is about this storage; of what lay in another one nothing is known here."""
        with self._lock:
            if backend is not self._backend:
                self._backend = backend
                self._words.clear()

    def words(self, keys: Sequence[str]) -> list[int]:
        """The word of each key; UNSEEN where it is unknown."""
        with self._lock:
            found = []
            for key in keys:
                word = self._words.get(key, UNSEEN)
                if word != UNSEEN:
                    self._words.move_to_end(key)
                found.append(word)
            return found

    def before_write(self, keys: Sequence[str], exists: Callable[[str], bool]) -> list[bool]:
        """Which keys the storage has already. Of those that it has not, nothing is known any more."""
        there = [bool(exists(key)) for key in keys]
        with self._lock:
            for key, present in zip(keys, there, strict=True):
                if not present:
                    self._words.pop(key, None)
        return there

    def written(self, keys: Sequence[str], words: Sequence[int], there: Sequence[bool], *, keeps_first: bool) -> None:
        """These keys were written, with pages of these words.

        Where something lay there before, the storage may have left it: one that `keeps_first` has, and of another
        nothing is known, unless both are of the same weights.
        """
        with self._lock:
            for key, word, present in zip(keys, words, there, strict=True):
                page = word & ~TIER_MASK
                if not present and page != UNSEEN:
                    self._keep(key, page)
                elif present and not keeps_first and self._words.get(key) != page:
                    self._words.pop(key, None)

    def _keep(self, key: str, word: int) -> None:
        self._words[key] = word
        self._words.move_to_end(key)
        if len(self._words) > self._most:
            self._words.popitem(last=False)
