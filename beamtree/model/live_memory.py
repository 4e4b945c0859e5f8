"""Counted memory that goes on counting: interactions since the model was fitted, beside what it knows.

Transitions are counted as far as there is room: what a list lacks of its new logarithm stands in further links.
The trend fades to the moment of the newest interaction. Company, returns and popularity wait for the next update.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from beamtree.model.memory import HALF, Links, Memory
from beamtree.model.trend import Trend
from beamtree.types import Float64Array, Int64Array

MOST_PAIRS = 1_000_000
"""Pairs of items that are counted; when there are more, those met once go first."""
MOST_HALF_LIVES = 40.0
"""Counts are moved to a later moment after so many, before they leave the range of numbers."""


class LiveMemory:
    """Counts interactions one by one, and gives a memory with them whenever it is asked.

    window: an item follows another within so many interactions, as in the counts of the fit.
    """

    def __init__(self, known: Memory, *, window: int, most_pairs: int = MOST_PAIRS) -> None:
        self._known = known
        self._window = window
        self._most_pairs = most_pairs
        self._num_items = len(known.popularity)
        self._pairs: dict[int, int] = {}
        trend = known.trend
        self._moment = self._newest = trend.moment
        self._faded: Float64Array = np.expm1(trend.demand.astype(np.float64))
        self.num_interactions = 0

    def add(self, item: int, *, before: Sequence[int], time: float | None) -> None:
        """Take note that somebody met an item.

        before: the items that the same person met before, oldest first; time: in the units of the log, None where it
        is not known.
        """
        self.num_interactions += 1
        for earlier in before[-self._window :]:
            if earlier != item:
                key = earlier * self._num_items + item
                self._pairs[key] = self._pairs.get(key, 0) + 1
        if len(self._pairs) > self._most_pairs:
            self._forget_rare_pairs()
        if time is not None and self._faded.size:
            self._fade_in(item, time)

    def memory(self) -> Memory:
        """What is known now."""
        return replace(self._known, recent=self._recent(), trend=self._trend())

    def _fade_in(self, item: int, time: float) -> None:
        """Counts are kept as of `_moment`: what comes later counts more than 1, instead of all others less."""
        half_life = self._known.trend.half_life
        if time - self._moment > MOST_HALF_LIVES * half_life:
            self._faded *= np.exp2((self._moment - time) / half_life)
            self._moment = time
        self._faded[item] += np.exp2((time - self._moment) / half_life)
        self._newest = max(self._newest, time)

    def _trend(self) -> Trend:
        known = self._known.trend
        if not self._faded.size:
            return known
        now = self._faded * np.exp2((self._moment - self._newest) / known.half_life)
        return Trend(np.log1p(now).astype(np.float32), known.half_life, self._newest)

    def _recent(self) -> Links:
        """What the lists of the fit lack: the difference of the logarithms of the counts."""
        keys = np.fromiter(self._pairs.keys(), dtype=np.int64, count=len(self._pairs))
        counts = np.fromiter(self._pairs.values(), dtype=np.float64, count=len(self._pairs))
        order = np.argsort(keys)
        keys, counts = keys[order], counts[order]
        sources, targets = keys // self._num_items, keys % self._num_items
        known = self._known_strengths(sources, targets)
        gained = np.log1p(np.expm1(known) + counts) - known
        offsets = np.searchsorted(sources, np.arange(self._num_items + 1)).astype(np.int64)
        return Links(offsets, targets.astype(np.int32), gained.astype(HALF))

    def _known_strengths(self, sources: Int64Array, targets: Int64Array) -> Float64Array:
        """ln(1 + count) of pairs (n,), sorted by source, in the lists of the fit; 0 where a list does not have one."""
        links = self._known.transitions
        strengths = np.zeros(len(sources))
        for source in np.unique(sources).tolist():
            own = slice(*np.searchsorted(sources, [source, source + 1]))
            listed = slice(links.offsets[source], links.offsets[source + 1])
            place = np.searchsorted(links.items[listed], targets[own])
            place = np.minimum(place, max(0, listed.stop - listed.start - 1))
            if listed.stop > listed.start:
                is_listed = links.items[listed][place] == targets[own]
                strengths[own] = np.where(is_listed, links.strengths[listed][place].astype(np.float64), 0.0)
        return strengths

    def _forget_rare_pairs(self) -> None:
        """Make room: pairs that were met once go; where all were met more often, half of the counts."""
        kept = {key: count for key, count in self._pairs.items() if count > 1}
        if len(kept) > self._most_pairs // 2:
            kept = {key: count // 2 for key, count in kept.items() if count > 3}
        self._pairs = kept
