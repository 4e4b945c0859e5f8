"""Search over a trained model: dense histories in, dense items and scores out. NumPy alone, no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.config import ModelSettings
from beamtree.errors import InputError
from beamtree.retrieval.beam import Ranking, beam_search, exact_scan
from beamtree.retrieval.scorer import NumpyScorer
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
Ragged = tuple[Int32Array, Int64Array]


@dataclass(frozen=True)
class Found:
    """Items (requests, k), best first, -1 where fewer were eligible, and their scores, -inf there."""

    items: Int32Array
    scores: Float32Array


class Engine:
    """A model's arrays, its tree, and the search over both."""

    def __init__(self, weights: Mapping[str, npt.NDArray[Any]], tree: ItemTree, *, settings: ModelSettings) -> None:
        self.tree = tree
        self.history_length = settings.history_length
        self._weights = weights
        self._settings = settings

    def search(
        self,
        histories: Int32Array,
        *,
        k: int,
        beam_width: int,
        allowed_items: BoolArray | None = None,
        excluded_items: Ragged | None = None,
    ) -> Found:
        """Beam search for each history (requests, history_length), oldest first, -1 in front.

        allowed_items: (items,), what may be returned at all; excluded_items: (flat, offsets), what each request must
        not get. The beam is at least k wide, and grows with what a request excludes, at most to twice its width.
        """
        eligibility = self._eligibility(histories, k=k, allowed_items=allowed_items, excluded_items=excluded_items)
        width = max(beam_width, k)
        excluded = np.broadcast_to(eligibility.num_excluded(np.arange(len(histories))), len(histories))
        widths = width + np.minimum(excluded, width)

        def rank(request: int) -> Ranking:
            return beam_search(
                self.tree,
                self._scorer(histories[request]),
                eligibility=eligibility,
                request=request,
                beam_width=int(widths[request]),
                k=k,
            )

        return self._collect([rank(request) for request in range(len(histories))], k=k)

    def scan(
        self,
        histories: Int32Array,
        *,
        k: int,
        allowed_items: BoolArray | None = None,
        excluded_items: Ragged | None = None,
    ) -> Found:
        """The exact top k for each history: every eligible leaf is scored."""
        eligibility = self._eligibility(histories, k=k, allowed_items=allowed_items, excluded_items=excluded_items)
        rankings = [
            exact_scan(self.tree, self._scorer(history), eligibility=eligibility, request=request, k=k)
            for request, history in enumerate(histories)
        ]
        return self._collect(rankings, k=k)

    def _scorer(self, history: Int32Array) -> NumpyScorer:
        return NumpyScorer(self._weights, self.tree, settings=self._settings, history=history)

    def _eligibility(
        self, histories: Int32Array, *, k: int, allowed_items: BoolArray | None, excluded_items: Ragged | None
    ) -> Eligibility:
        if histories.ndim != 2 or histories.shape[1] != self.history_length:
            raise InputError(
                f"Expected histories of shape (requests, {self.history_length}), got {histories.shape}. "
                "Cut or pad them in front with -1."
            )
        if histories.size and not -1 <= histories.min() <= histories.max() < self.tree.num_items:
            raise InputError(f"Expected dense items below {self.tree.num_items}, got {histories.max()}.")
        if k < 1:
            raise InputError(f"Expected k of at least 1, got {k}.")
        return Eligibility(self.tree, allowed_items=allowed_items, excluded_items=excluded_items)

    def _collect(self, rankings: list[Ranking], *, k: int) -> Found:
        items = np.full((len(rankings), k), -1, dtype=np.int32)
        scores = np.full((len(rankings), k), -np.inf, dtype=np.float32)
        for request, ranking in enumerate(rankings):
            found = len(ranking.leaves)
            items[request, :found] = self.tree.item_at_leaf[ranking.leaves]
            scores[request, :found] = ranking.scores
        return Found(items=items, scores=scores)
