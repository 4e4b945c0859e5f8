"""Beam search and exact scan with NumPy alone, request by request: what runs where no compiler was at hand."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.config import ModelSettings
from beamtree.retrieval.beam import Ranking, beam_search, exact_scan
from beamtree.retrieval.found import BoolArray, Found, Int32Array, Ragged
from beamtree.retrieval.scorer import NumpyScorer
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree


class NumpySearch:
    """The reference searches over a model's arrays."""

    def __init__(self, weights: Mapping[str, npt.NDArray[Any]], tree: ItemTree, *, settings: ModelSettings) -> None:
        self._weights = weights
        self._tree = tree
        self._settings = settings

    def search(
        self,
        histories: Int32Array,
        *,
        k: int,
        beam_width: int,
        allowed_items: BoolArray | None,
        excluded_items: Ragged | None,
    ) -> Found:
        """Beam search; a request's beam grows by what it excludes, at most to twice its width."""
        eligibility = Eligibility(self._tree, allowed_items=allowed_items, excluded_items=excluded_items)
        excluded = np.broadcast_to(eligibility.num_excluded(np.arange(len(histories))), len(histories))
        widths = beam_width + np.minimum(excluded, beam_width)
        rankings = [
            beam_search(
                self._tree,
                self._scorer(history),
                eligibility=eligibility,
                request=request,
                beam_width=int(widths[request]),
                k=k,
            )
            for request, history in enumerate(histories)
        ]
        return self._collect(rankings, k=k)

    def scan(
        self, histories: Int32Array, *, k: int, allowed_items: BoolArray | None, excluded_items: Ragged | None
    ) -> Found:
        """The exact top k: every eligible leaf is scored."""
        eligibility = Eligibility(self._tree, allowed_items=allowed_items, excluded_items=excluded_items)
        rankings = [
            exact_scan(self._tree, self._scorer(history), eligibility=eligibility, request=request, k=k)
            for request, history in enumerate(histories)
        ]
        return self._collect(rankings, k=k)

    def _scorer(self, history: Int32Array) -> NumpyScorer:
        return NumpyScorer(self._weights, self._tree, settings=self._settings, history=history)

    def _collect(self, rankings: list[Ranking], *, k: int) -> Found:
        items = np.full((len(rankings), k), -1, dtype=np.int32)
        scores = np.full((len(rankings), k), -np.inf, dtype=np.float32)
        for request, ranking in enumerate(rankings):
            found = len(ranking.leaves)
            items[request, :found] = self._tree.item_at_leaf[ranking.leaves]
            scores[request, :found] = ranking.scores
        return Found(items=items, scores=scores)
