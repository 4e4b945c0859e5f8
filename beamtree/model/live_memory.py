"""Counted memory that goes on counting: interactions since the model was fitted, beside what it knows.

Transitions are counted as far as there is room: what a list lacks of its new logarithm stands in further links. So does
what people who had an item met later, as company: the share of them,

    people who met the item after h  /  (people who had h ^ (1 - balance) * people who had the item ^ balance),

where interactions stand for the people of the fit. The trend fades to the moment of the newest interaction. Returns and
popularity wait for the next update.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from beamtree.model.memory import HALF, Links, Memory
from beamtree.model.trend import Trend
from beamtree.types import Float64Array, Int64Array

MOST_PAIRS = 1_000_000
"""Pairs of items that are counted, 24 MB; when there are more, the rarest go first."""
MOST_HALF_LIVES = 40.0
"""Counts are moved to a later moment after so many, before they leave the range of numbers."""


class Interaction(NamedTuple):
    """Somebody met an item.

    before: the items that the same person met before, oldest first; time: in the units of the log, None where unknown;
    weight: what it counts as something to be foreseen.
    """

    item: int
    before: Sequence[int]
    time: float | None
    weight: float = 1.0


class LiveMemory:
    """Counts interactions as they come, and gives a memory with them whenever it is asked.

    window: an item follows another within so many interactions, as in the counts of the fit.
    """

    def __init__(self, known: Memory, *, window: int, most_pairs: int = MOST_PAIRS) -> None:
        self._known = known
        self._window = window
        self._most_pairs = most_pairs
        self._num_items = len(known.popularity)
        self._pairs: Int64Array = np.empty(0, dtype=np.int64)
        self._counts: Float64Array = np.empty(0, dtype=np.float64)
        self._shared: Float64Array = np.empty(0, dtype=np.float64)
        """Of the same pairs: people who met the target for the first time after the source."""
        self._had = np.expm1(known.popularity.astype(np.float64))
        self._wanted = self._had.copy()
        trend = known.trend
        self._moment = self._newest = trend.moment
        self._faded: Float64Array = np.expm1(trend.demand.astype(np.float64))
        self.num_interactions = 0

    def add(self, interactions: Sequence[Interaction]) -> None:
        """Take note of interactions, in their order."""
        self.num_interactions += len(interactions)
        pairs: list[int] = []
        counts: list[float] = []
        shared: list[float] = []
        for item, all_before, _, weight in interactions:
            before = all_before[-self._window :]
            is_first = item not in before
            if is_first:
                self._had[item] += 1.0
                self._wanted[item] += weight
            if weight <= 0.0:
                continue
            times = Counter(before)
            del times[item]
            pairs += [earlier * self._num_items + item for earlier in times]
            counts += [weight * number for number in times.values()]
            shared += [weight if is_first else 0.0] * len(times)
        if pairs:
            self._count(np.array(pairs, dtype=np.int64), np.array(counts), np.array(shared))
        if self._faded.size:
            for interaction in interactions:
                if interaction.time is not None:
                    self._fade_in(interaction.item, interaction.time, interaction.weight)

    def memory(self) -> Memory:
        """What is known now."""
        has_company = self._known.weights.company > 0.0
        return replace(
            self._known,
            recent=self._recent(),
            recent_company=self._recent_company() if has_company else None,
            trend=self._trend(),
        )

    def _count(self, met: Int64Array, counts: Float64Array, shared: Float64Array) -> None:
        """Add pairs, source * items + target, with how often they were met and by how many people together."""
        self._pairs, place = np.unique(np.concatenate([self._pairs, met]), return_inverse=True)
        self._counts = np.bincount(place, weights=np.concatenate([self._counts, counts])).astype(np.float64, copy=False)
        self._shared = np.bincount(place, weights=np.concatenate([self._shared, shared])).astype(np.float64, copy=False)
        if len(self._pairs) > self._most_pairs:
            kept = np.sort(np.argsort(-self._counts, kind="stable")[: self._most_pairs // 2])
            self._pairs, self._counts, self._shared = self._pairs[kept], self._counts[kept], self._shared[kept]

    def _fade_in(self, item: int, time: float, weight: float) -> None:
        """Counts are kept as of `_moment`: what comes later counts more, instead of all others less."""
        half_life = self._known.trend.half_life
        if time - self._moment > MOST_HALF_LIVES * half_life:
            self._faded *= np.exp2((self._moment - time) / half_life)
            self._moment = time
        self._faded[item] += weight * np.exp2((time - self._moment) / half_life)
        self._newest = max(self._newest, time)

    def _trend(self) -> Trend:
        known = self._known.trend
        if not self._faded.size:
            return known
        now = self._faded * np.exp2((self._moment - self._newest) / known.half_life)
        return Trend(np.log1p(now).astype(np.float32), known.half_life, self._newest)

    def _recent(self) -> Links:
        """What the lists of the fit lack: the difference of the logarithms of the counts."""
        sources, targets = self._pairs // self._num_items, self._pairs % self._num_items
        known = _listed_strengths(self._known.transitions, sources, targets)
        gained = np.log1p(np.expm1(known) + self._counts) - known
        return self._links(sources, targets, gained)

    def _recent_company(self) -> Links:
        """The share of people with the source who met the target since; known shares stay as they are."""
        is_shared = self._shared > 0.0
        sources, targets = np.divmod(self._pairs[is_shared], self._num_items)
        balance = self._known.weights.balance
        people = (
            np.maximum(self._had[sources], 1.0) ** (1.0 - balance) * np.maximum(self._wanted[targets], 1.0) ** balance
        )
        return self._links(sources, targets, self._shared[is_shared] / people)

    def _links(self, sources: Int64Array, targets: Int64Array, strengths: Float64Array) -> Links:
        offsets = np.searchsorted(sources, np.arange(self._num_items + 1)).astype(np.int64)
        return Links(offsets, targets.astype(np.int32), strengths.astype(HALF))


def _listed_strengths(links: Links, sources: Int64Array, targets: Int64Array) -> Float64Array:
    """How strongly sources (n,) point to targets (n,), 0 where they do not; all lists are searched at once."""
    first, end = links.offsets[sources].copy(), links.offsets[sources + 1].copy()
    last = end
    while (is_open := first < end).any():
        middle = (first + end) // 2
        is_below = is_open & (links.items[np.minimum(middle, len(links.items) - 1)] < targets)
        first, end = np.where(is_below, middle + 1, first), np.where(is_open & ~is_below, middle, end)
    strengths = np.zeros(len(sources))
    is_there = first < last
    is_there[is_there] = links.items[first[is_there]] == targets[is_there]
    strengths[is_there] = links.strengths[first[is_there]]
    return strengths
