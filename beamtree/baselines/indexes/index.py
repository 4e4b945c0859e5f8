"""Indexes over vectors, and search with filters over them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from beamtree.baselines.indexes.vectors import MakeVectors, TrainingQueries, VectorSource, training_queries
from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.errors import BaselineUnavailable, InputError
from beamtree.evaluation.answers import empty_result
from beamtree.retrieval.result import SearchResult
from beamtree.types import NOTHING, BoolArray, Float32Array, Int32Array, Int64Array

MIN_ITEMS = 16
"""With fewer, ScaNN and the quantisers cannot be trained, and no index is needed."""

REQUESTS_AT_A_TIME = 1024


SearchVectors = Callable[[Float32Array, int, int], SearchResult]
"""From queries (queries, size), k and an effort to up to k items (queries, k), -1 with score -inf where fewer were
found."""


@dataclass(frozen=True, eq=False)
class VectorIndex:
    """Finds vectors of high inner product with a query. effort_name, efforts, index_bytes: as in `protocol.Index`.

    usual_effort: the default effort, one of the efforts.
    """

    search: SearchVectors
    effort_name: str
    efforts: tuple[int, ...]
    usual_effort: int
    index_bytes: int


class BuildIndex(Protocol):
    """Builds an index over vectors (items, size), of at least `MIN_ITEMS` items."""

    def __call__(self, vectors: Float32Array, *, queries: TrainingQueries, budget: Budget) -> VectorIndex:
        """queries: what the index will be asked for, for those that learn from it. BaselineUnavailable: too large."""


class IndexBaseline:
    """A two-stage baseline: vectors of another model, and an index over them."""

    def __init__(self, name: str, *, vectors: MakeVectors, build: BuildIndex) -> None:
        self.name = name
        self._make_vectors, self._build = vectors, build

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> "IndexedItems":
        """As `Baseline.fit`."""
        if len(dataset.items) < MIN_ITEMS:
            raise BaselineUnavailable(
                f"{self.name} expects at least {MIN_ITEMS} items to index, got {len(dataset.items)}: score them all."
            )
        source = self._make_vectors(dataset, split, budget=budget)
        queries = training_queries(source, dataset, split, seed=budget.seed)
        index = self._build(source.item_vectors, queries=queries, budget=budget)
        return IndexedItems(source, index, effort=index.usual_effort)


class IndexedItems:
    """Answers from an index, and an `Index`. Equal scores go to the lower item.

    Indexes know no filters: they are asked for as many items more as a request excludes (rounded up to a power of two;
    and for more in proportion, where only some items are allowed), and what is not eligible is dropped. Where fewer
    than k remain, all others are scanned for the rest, which follows behind what the index found: its scores are the
    inner products, lowered so that they stay below.
    """

    def __init__(self, source: VectorSource, index: VectorIndex, *, effort: int) -> None:
        if effort < 1:
            raise InputError(f"Expected {index.effort_name} of at least 1, got {effort}.")
        self.source, self.index = source, index
        self.effort_name, self.effort, self.efforts = index.effort_name, effort, index.efforts
        self.index_bytes = index.index_bytes

    def with_effort(self, effort: int) -> "IndexedItems":
        """As `protocol.Index`."""
        return IndexedItems(self.source, self.index, effort=effort)

    def search(self, requests: Requests, *, k: int) -> SearchResult:
        """As `Answers.search`."""
        result = empty_result(len(requests), k=k)
        queries = self.source.queries(requests)
        asked_for = self._asked_for(requests, k=k)
        for count in np.unique(asked_for).tolist():
            of_this_count = np.flatnonzero(asked_for == count)
            for first in range(0, len(of_this_count), REQUESTS_AT_A_TIME):
                rows = of_this_count[first : first + REQUESTS_AT_A_TIME]
                found = self.index.search(queries[rows], count, self.effort)
                for place, row in enumerate(rows.tolist()):
                    excluded = None if requests.excluded is None else requests.excluded.of(row)
                    is_eligible = _Eligible(requests.allowed, excluded)
                    items, scores = _best_eligible(found.items[place], found.scores[place], is_eligible, k=k)
                    if len(items) < k:
                        items, scores = self._filled_up(items, scores, queries[row], is_eligible, k=k)
                    result.items[row, : len(items)] = items
                    result.scores[row, : len(items)] = scores
        return result

    def _asked_for(self, requests: Requests, *, k: int) -> Int64Array:
        """How many items the index is asked for, (requests,): by the request alone, whichever others are beside it."""
        num_items = len(self.source.item_vectors)
        more = np.zeros(len(requests), dtype=np.int64)
        if requests.excluded is not None:
            more += requests.excluded.lengths
        if requests.allowed is not None:
            share = max(1, int(requests.allowed.sum())) / num_items
            more = np.ceil((k + more) / share).astype(np.int64) - k
        rounded = np.where(more > 0, 2 ** np.ceil(np.log2(np.maximum(more, 1))).astype(np.int64), 0)
        return np.asarray(np.minimum(k + rounded, num_items))

    def _filled_up(
        self, items: Int32Array, scores: Float32Array, query: Float32Array, is_eligible: "_Eligible", *, k: int
    ) -> tuple[Int32Array, Float32Array]:
        """The items that were found, and behind them the best of all others that are eligible."""
        others = np.arange(len(self.source.item_vectors), dtype=np.int32)
        others = others[is_eligible(others)]
        others = others[~np.isin(others, items)]
        products = np.asarray(self.source.item_vectors[others] @ query, dtype=np.float32)
        if len(items) and len(others):
            highest = np.nextafter(scores[-1], np.float32(-np.inf))
            products = np.minimum(products - np.maximum(products.max() - highest, 0), highest)
        best = np.argsort(-products, kind="stable")[: k - len(items)]
        return np.concatenate([items, others[best]]), np.concatenate([scores, products[best]])


class _Eligible:
    """Which items (n,) a request may get."""

    def __init__(self, allowed: BoolArray | None, excluded: Int32Array | None) -> None:
        self._allowed, self._excluded = allowed, excluded

    def __call__(self, items: Int32Array) -> BoolArray:
        eligible: BoolArray = items != NOTHING
        if self._excluded is not None:
            eligible &= ~np.isin(items, self._excluded)
        if self._allowed is not None:
            eligible &= self._allowed[items]
        return eligible


def _best_eligible(
    items: Int32Array, scores: Float32Array, is_eligible: _Eligible, *, k: int
) -> tuple[Int32Array, Float32Array]:
    """At most k of the items (n,) that were found, best first, the lower item first among equals."""
    eligible = is_eligible(items)
    items, scores = items[eligible], scores[eligible]
    order = np.lexsort((items, -scores))[:k]
    return items[order], scores[order]


def rising(*candidates: int, most: int) -> tuple[int, ...]:
    """Efforts: the candidates below `most`, and `most` itself, rising and each once."""
    return tuple(sorted({each for each in candidates if 1 <= each < most} | {most}))


POWERS = tuple(2**exponent for exponent in range(12))
"""Efforts to try where the knob counts cells: 1 to 2,048."""
