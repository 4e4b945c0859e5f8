"""JTR as an index: a beam over the buckets, and the items of the best ones ranked by inner products."""

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from beamtree.baselines.trees.bucket_tree import BucketTree
from beamtree.baselines.trees.jtr_model import JtrModel
from beamtree.data.requests import Requests
from beamtree.errors import InputError
from beamtree.evaluation.answers import empty_result
from beamtree.retrieval.result import SearchResult
from beamtree.types import NOTHING, BoolArray, Float32Array, Int64Array

WIDTHS = (1, 2, 5, 10, 20, 50, 100, 200)
"""Buckets to try."""
REQUESTS_AT_A_TIME = 512


@dataclass(eq=False)
class JtrIndex:
    """Answers by beam search over buckets, as `Index` of the baselines' protocol.

    effort: buckets whose items are ranked; more of them where these have too few that may be returned. index_bytes:
    the nodes' vectors and the buckets; the items' vectors belong to the encoder.
    """

    model: JtrModel
    tree: BucketTree
    effort: int
    effort_name: str = "beam"
    efforts: tuple[int, ...] = field(init=False)
    index_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.efforts = tuple(width for width in WIDTHS if width < self.tree.num_leaves) or (self.tree.num_leaves,)
        vectors = sum(level.nbytes for level in self.model.level_vectors())
        children = sum(first.nbytes for first in self.tree.first_child)
        self.index_bytes = vectors + children + self.tree.buckets.nbytes

    def with_effort(self, effort: int) -> "JtrIndex":
        """The same index with another number of buckets; InputError below 1."""
        if effort < 1:
            raise InputError(f"Expected a beam width of at least 1, got {effort}.")
        return replace(self, effort=effort)

    def search(self, requests: Requests, *, k: int) -> SearchResult:
        """As `Answers.search`."""
        result, queries = empty_result(len(requests), k=k), self.queries(requests)
        items = self.model.encoder.item_vectors()
        for request, query in enumerate(queries):
            found = self._candidates(query, _eligible(requests, request, num_items=len(items)), at_least=k)
            scores = items[found] @ query
            best = np.argsort(-scores, kind="stable")[:k]
            result.items[request, : len(best)] = found[best]
            result.scores[request, : len(best)] = scores[best]
        return result

    @torch.no_grad()
    def queries(self, requests: Requests) -> Float32Array:
        """Encodings (requests, width)."""
        self.model.eval()
        histories = requests.histories.latest(self.model.encoder.history_length)
        found = np.empty((len(requests), self.model.encoder.items.shape[1]), dtype=np.float32)
        for first in range(0, len(requests), REQUESTS_AT_A_TIME):
            rows = slice(first, first + REQUESTS_AT_A_TIME)
            found[rows] = self.model.queries(histories[rows]).numpy()
        return found

    def leaves(self, queries: Float32Array) -> Int64Array:
        """The buckets that each query's beam finds, (queries, beam), -1 where there are fewer."""
        found = np.full((len(queries), self.effort), NOTHING, dtype=np.int64)
        for row, query in enumerate(queries):
            leaves = self._leaves(query, self.effort)
            found[row, : len(leaves)] = leaves
        return found

    def _candidates(self, query: Float32Array, eligible: BoolArray, *, at_least: int) -> Int64Array:
        """Eligible items of the best buckets, rising; of ever more buckets, until there are enough or no more."""
        width, wanted = self.effort, min(at_least, int(eligible.sum()))
        while True:
            items = self._items_of(self._leaves(query, width))
            items = items[eligible[items]]
            if len(items) >= wanted:
                return items
            width *= 2

    def _leaves(self, query: Float32Array, width: int) -> Int64Array:
        return self.tree.search(query, self.model.level_vectors(), beam_width=width)

    def _items_of(self, leaves: Int64Array) -> Int64Array:
        """Distinct items of some buckets, rising."""
        items = self.tree.buckets[leaves]
        return np.unique(items[items != NOTHING]).astype(np.int64)


def _eligible(requests: Requests, request: int, *, num_items: int) -> BoolArray:
    """Which items may be returned to a request, (items,)."""
    eligible = np.ones(num_items, dtype=np.bool_) if requests.allowed is None else requests.allowed.copy()
    if requests.excluded is not None:
        excluded = requests.excluded.of(request)
        eligible[excluded[excluded != NOTHING]] = False
    return eligible
