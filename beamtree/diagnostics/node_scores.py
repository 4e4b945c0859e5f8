"""Scores of any nodes of any level for one history."""

from collections.abc import Callable

import numpy as np

from beamtree.artefact import Artefact
from beamtree.data.requests import Histories, Requests
from beamtree.retrieval.beam import ScoreNodes
from beamtree.retrieval.engine import scores_of
from beamtree.retrieval.scorers import arrays_by_part, build_scorer
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, Float64Array, Int32Array, Int64Array

ScorerOf = Callable[[Int32Array], ScoreNodes]
"""From a history (positions,), oldest first, -1 in front, to the function that scores nodes for it."""


def learned_parts(artefact: Artefact) -> tuple[str, ...]:
    """The parts of a model's score that are learned, by name: all but counted memory."""
    return tuple(sorted(arrays_by_part(artefact.weights).keys() - {"memory"}))


def scorer_of(artefact: Artefact) -> ScorerOf:
    """How what was learned scores nodes: the levels of a tree and their losses are about that.

    Counted memory is left out. Its counts hold the very pairs of a training instance, and it is a max-heap by itself.
    """
    learned = {name: array for name, array in artefact.weights.items() if not name.startswith("memory/")}
    scorer = build_scorer(learned, artefact.tree, config=artefact.config)
    return lambda history: scores_of(scorer.prepare(Requests(Histories.of_rows(history[None]))), 0)


class Occupied:
    """The nodes of each level that have an item below them; the others are never scored, sampled or returned."""

    def __init__(self, tree: ItemTree) -> None:
        self.tree = tree
        self.mask = [tree.occupied(level) for level in range(tree.height + 1)]
        self.nodes = [np.flatnonzero(mask) for mask in self.mask]
        self._items_before_leaf = np.concatenate([[0], np.cumsum(tree.item_at_leaf != NOTHING)])

    def items_below(self, nodes: Int64Array, level: int) -> Int64Array:
        """The number of items below each of some nodes of a level."""
        first, end = self.tree.leaf_ranges(nodes, level)
        return np.asarray(self._items_before_leaf[end] - self._items_before_leaf[first])

    def scores_of_level(self, score_nodes: ScoreNodes, level: int) -> Float64Array:
        """Scores of a whole level (nodes,), -inf where no item is below."""
        scores = np.full(self.tree.level_sizes[level], -np.inf)
        scores[self.nodes[level]] = score_nodes(level, self.nodes[level])
        return scores
