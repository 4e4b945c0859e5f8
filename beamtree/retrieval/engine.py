"""Search over any scorer: requests in dense ids in, items and scores out. No torch."""

from typing import Protocol, runtime_checkable

import numpy as np

from beamtree.data.requests import Requests
from beamtree.errors import InputError
from beamtree.retrieval.beam import Ranking, ScoreNodes, beam_search, exact_scan, widened
from beamtree.retrieval.result import SearchResult
from beamtree.scorer import PreparedScores, Scorer
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import MAX_LEAVES, ItemTree
from beamtree.types import NOTHING, AnyArray, Int64Array


@runtime_checkable
class SearchingScorer(Scorer, Protocol):
    """A scorer that searches by itself: the same answers as the reference search, faster."""

    def search(self, requests: Requests, *, k: int, beam_width: int) -> SearchResult:
        """Beam search; a request's beam grows by what it excludes, at most to twice its width."""

    def scan(self, requests: Requests, *, k: int) -> SearchResult:
        """The exact top k: every eligible leaf is scored."""


class Engine:
    """A scorer, its tree, and the search over both: by the scorer itself where it can, else by the reference search."""

    def __init__(self, scorer: Scorer, tree: ItemTree) -> None:
        self.scorer = scorer
        self.tree = tree

    def search(self, requests: Requests, *, k: int, beam_width: int) -> SearchResult:
        """Beam search for each request.

        The beam is at least k wide, and grows with what a request excludes, at most to twice its width. A beam wider
        than the tree keeps every leaf.
        """
        self._check(requests, k=k)
        if beam_width < 1:
            raise InputError(f"Expected a beam width of at least 1, got {beam_width}.")
        width = min(max(beam_width, k), self.tree.num_leaves)
        if isinstance(self.scorer, SearchingScorer):
            return self.scorer.search(requests, k=k, beam_width=width)
        eligibility, prepared = Eligibility.of(requests, self.tree), self.scorer.prepare(requests)
        excluded = np.broadcast_to(eligibility.num_excluded(np.arange(len(requests))), len(requests))
        widths = widened(width, excluded)
        rankings = [
            beam_search(
                self.tree,
                scores_of(prepared, request),
                eligibility=eligibility,
                request=request,
                beam_width=int(widths[request]),
                k=k,
            )
            for request in range(len(requests))
        ]
        return self._collect(rankings, k=k)

    def scan(self, requests: Requests, *, k: int) -> SearchResult:
        """The exact top k for each request: every eligible leaf is scored."""
        self._check(requests, k=k)
        if isinstance(self.scorer, SearchingScorer):
            return self.scorer.scan(requests, k=k)
        eligibility, prepared = Eligibility.of(requests, self.tree), self.scorer.prepare(requests)
        rankings = [
            exact_scan(self.tree, scores_of(prepared, request), eligibility=eligibility, request=request, k=k)
            for request in range(len(requests))
        ]
        return self._collect(rankings, k=k)

    def _collect(self, rankings: list[Ranking], *, k: int) -> SearchResult:
        items = np.full((len(rankings), k), NOTHING, dtype=np.int32)
        scores = np.full((len(rankings), k), -np.inf, dtype=np.float32)
        for request, ranking in enumerate(rankings):
            found = len(ranking.leaves)
            items[request, :found] = self.tree.item_at_leaf[ranking.leaves]
            scores[request, :found] = ranking.scores
        return SearchResult(items=items, scores=scores)

    def _check(self, requests: Requests, *, k: int) -> None:
        if not 1 <= k <= MAX_LEAVES:
            raise InputError(f"Expected k from 1 to {MAX_LEAVES:,}, got {k}.")
        histories = requests.histories
        self._check_items(histories.flattened().items, "histories", lowest=0)
        if requests.excluded is not None:
            self._check_items(requests.excluded.items, "excluded items", lowest=-1)
        allowed = requests.allowed
        if allowed is not None and allowed.shape != (self.tree.num_items,):
            raise InputError(f"Expected one flag for each of {self.tree.num_items} items, got shape {allowed.shape}.")

    def _check_items(self, items: AnyArray, name: str, *, lowest: int) -> None:
        if items.size and not lowest <= items.min() <= items.max() < self.tree.num_items:
            raise InputError(
                f"Expected {name} from {lowest} to {self.tree.num_items - 1}, got {items.min()} to {items.max()}. "
                "Encode raw ids with the vocabulary of this model."
            )


def scores_of(prepared: PreparedScores, request: int) -> ScoreNodes:
    """The function from a level and its nodes to their scores, for one request."""

    def score(level: int, nodes: Int64Array) -> AnyArray:
        return prepared.scores(request, level, nodes)

    return score
