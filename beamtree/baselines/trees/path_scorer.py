"""Scores of paths: a node counts the logarithms of the sigmoids of all nodes from below the root down to it."""

import numpy as np

from beamtree.data.requests import Requests
from beamtree.scorer import PreparedScores, Scorer
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array, Int64Array


class PathScorer:
    """A scorer of nodes given their parents as a scorer of paths."""

    def __init__(self, scorer: Scorer, tree: ItemTree) -> None:
        self._scorer = scorer
        self._tree = tree

    def prepare(self, requests: Requests) -> "PathScores":
        """Scores for these requests."""
        return PathScores(self._scorer.prepare(requests), self._tree)


class PathScores:
    """What paths score for requests; those of the request that was asked for last are remembered."""

    def __init__(self, prepared: PreparedScores, tree: ItemTree) -> None:
        self._prepared = prepared
        self._tree = tree
        self._request = -1
        self._known: list[Float32Array] = []

    def scores(self, request: int, level: int, nodes: Int64Array) -> Float32Array:
        """ln of the product of the sigmoids along the paths (n,) to nodes (n,) of a level."""
        if request != self._request:
            self._request = request
            self._known = [np.full(size, np.nan, dtype=np.float32) for size in self._tree.level_sizes]
            self._known[0][:] = 0.0
        known = self._known[level]
        missing = np.unique(nodes[np.isnan(known[nodes])])
        if missing.size:
            first_leaf, _ = self._tree.leaf_ranges(missing, level)
            parents = self._tree.ancestors(first_leaf, level - 1)
            own = log_sigmoid(self._prepared.scores(request, level, missing))
            known[missing] = self.scores(request, level - 1, parents) + own
        return known[nodes]


def log_sigmoid(scores: Float32Array) -> Float32Array:
    """ln s(o) = -ln(1 + e^-o), without overflow."""
    return np.asarray(-np.logaddexp(np.float32(0.0), -scores), dtype=np.float32)
