"""PLT (Jasinska-Kobus et al., 2020), a probabilistic label tree: the conditional probability of each child, multiplied.

Trained on each level with the positives' siblings as the only negatives, by binary cross-entropy. The sigmoid of a
node is its probability given its parent, so the beam is guided by the product of the sigmoids along the path.

Open in the comparison's paper: the network (DIN with a table of histories of its own, as for TDM) and the tree, which
starts from categories as all others do and is not updated. In the original, labels are clustered by their features, and
scores are linear.
"""

from collections.abc import Mapping

import numpy as np

from beamtree.baselines.trees.method import Method
from beamtree.baselines.trees.node_loss import NodewiseLoss, SiblingNodes
from beamtree.baselines.trees.node_scores import learner_of
from beamtree.config import Config
from beamtree.data.requests import Requests
from beamtree.retrieval.scorers import build_scorer
from beamtree.scorer import PreparedScores, Scorer
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array, Int64Array


class PathScorer:
    """A scorer of nodes given their parents as one of paths: a node counts the logarithms of the sigmoids of all nodes
    from below the root down to it."""

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


def make_method() -> Method:
    """How PLT learns and searches; its tree stays."""
    return Method(
        lambda score, config: learner_of(NodewiseLoss(SiblingNodes(score.tree)), score, config=config),
        make_scorer=_search_by_path,
    )


def _search_by_path(weights: Mapping[str, AnyArray], tree: ItemTree, config: Config) -> PathScorer:
    return PathScorer(build_scorer(weights, tree, config=config), tree)
