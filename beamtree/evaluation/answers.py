"""Systems that can be evaluated, through `search`: a tree by beam or by scan, and anything that scores all items."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from beamtree.data.requests import Requests
from beamtree.errors import InputError
from beamtree.model.estimator import Estimator, scores_of
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.result import SearchResult
from beamtree.types import NOTHING, Float32Array, Int64Array

SCORES_AT_A_TIME = 2**24
"""Scores (requests x items) that are in memory together: 64 MB."""


class Answers(Protocol):
    """A system that recommends items for requests."""

    def search(self, requests: Requests, *, k: int) -> SearchResult:
        """The top k eligible items of each request, best first; -1 with score -inf if fewer are eligible."""


@dataclass(frozen=True, eq=False)
class BeamSearch:
    """Beam search over a tree."""

    engine: Engine
    beam_width: int

    def search(self, requests: Requests, *, k: int) -> SearchResult:
        """As `Answers.search`."""
        return self.engine.search(requests, k=k, beam_width=self.beam_width)


@dataclass(frozen=True, eq=False)
class ExactScan:
    """Exact scan: every leaf is scored."""

    engine: Engine

    def search(self, requests: Requests, *, k: int) -> SearchResult:
        """As `Answers.search`."""
        return self.engine.scan(requests, k=k)


@dataclass(frozen=True, eq=False)
class ScoredItems:
    """Search over all items by a score function; ties go to the lower item.

    score: from requests to scores (requests, items) in an array of their own; filters are applied here. It is asked for
    a block of requests at a time, so that at most `SCORES_AT_A_TIME` scores are in memory together.
    """

    score: Callable[[Requests], Float32Array]
    num_items: int

    def search(self, requests: Requests, *, k: int) -> SearchResult:
        """As `Answers.search`; InputError for a k below 1."""
        result = empty_result(len(requests), k=k)
        block = max(1, SCORES_AT_A_TIME // self.num_items)
        for first in range(0, len(requests), block):
            asked = requests.take(slice(first, first + block))
            scores = _filtered(self.score(asked), asked)
            for row, values in enumerate(scores, start=first):
                best = _best_items(values, k)
                result.items[row, : len(best)] = best
                result.scores[row, : len(best)] = values[best]
        return result


def scored_by(model: Estimator, *, num_items: int) -> ScoredItems:
    """Answers of a model that scores all items for padded histories, or for whole requests."""
    return ScoredItems(partial(scores_of, model), num_items)


def empty_result(num_requests: int, *, k: int) -> SearchResult:
    """A result without items; InputError for a k below 1."""
    if k < 1:
        raise InputError(f"Expected k of at least 1, got {k}.")
    items = np.full((num_requests, k), NOTHING, dtype=np.int32)
    return SearchResult(items, np.full((num_requests, k), -np.inf, dtype=np.float32))


def _filtered(scores: Float32Array, requests: Requests) -> Float32Array:
    """-inf where an item must not be returned."""
    if requests.allowed is not None:
        scores[:, ~requests.allowed] = -np.inf
    if requests.excluded is not None:
        row = np.repeat(np.arange(len(requests)), requests.excluded.lengths)
        is_known = requests.excluded.items != NOTHING
        scores[row[is_known], requests.excluded.items[is_known]] = -np.inf
    return scores


def _best_items(scores: Float32Array, k: int) -> Int64Array:
    """The items of the k highest finite scores (items,), best first, fewer where there are fewer."""
    least = -np.inf if k >= len(scores) else np.partition(scores, -k)[-k]
    contenders = np.flatnonzero((scores >= least) & np.isfinite(scores))
    return contenders[np.argsort(-scores[contenders], kind="stable")][:k]
