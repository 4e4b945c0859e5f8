"""Scores of any nodes of any level for one history: in the kernels where they were compiled, else in NumPy."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from beamtree import native
from beamtree.artefact import Artefact
from beamtree.retrieval.beam import ScoreNodes
from beamtree.retrieval.scorer import NumpyScorer
from beamtree.tree.item_tree import VACANT, ItemTree

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]
ScorerOf = Callable[[Int32Array], ScoreNodes]
"""From a history (positions,), oldest first, -1 in front, to the function that scores nodes for it."""


def scorer_of(artefact: Artefact) -> ScorerOf:
    """How the model of an artefact scores nodes."""
    weights, tree, settings = artefact.weights, artefact.tree, artefact.config.model
    if not native.is_available():
        return lambda history: NumpyScorer(weights, tree, settings=settings, history=history)
    from beamtree.native.network import Network

    network = Network.pack(weights, windows=settings.windows, normalisation=settings.normalisation)
    node_table, item_table = weights["node_table"], weights.get("item_table")

    def for_history(history: Int32Array) -> ScoreNodes:
        def score(level: int, nodes: Int64Array) -> npt.NDArray[np.float32]:
            if item_table is not None:
                history_rows = history.astype(np.int64)
            else:
                ancestors = tree.item_ancestors(history, level)
                history_rows = np.where(ancestors == VACANT, VACANT, ancestors + tree.level_offsets[level])
            return network.score(
                node_table,
                node_rows=nodes + tree.level_offsets[level],
                history_table=node_table if item_table is None else item_table,
                history_rows=history_rows,
            )

        return score

    return for_history


class Occupied:
    """The nodes of each level that have an item below them; the others are never scored, sampled or returned."""

    def __init__(self, tree: ItemTree) -> None:
        self.tree = tree
        self.mask = [tree.occupied(level) for level in range(tree.height + 1)]
        self.nodes = [np.flatnonzero(mask) for mask in self.mask]
        self._items_before_leaf = np.concatenate([[0], np.cumsum(tree.item_at_leaf != VACANT)])

    def items_below(self, nodes: Int64Array, level: int) -> Int64Array:
        """How many items stand below each of some nodes of a level."""
        first, end = self.tree.leaf_ranges(nodes, level)
        return np.asarray(self._items_before_leaf[end] - self._items_before_leaf[first])

    def scores_of_level(self, score_nodes: ScoreNodes, level: int) -> Float64Array:
        """Scores of a whole level (nodes,), -inf where no item is below."""
        scores = np.full(self.tree.level_sizes[level], -np.inf)
        scores[self.nodes[level]] = score_nodes(level, self.nodes[level])
        return scores
