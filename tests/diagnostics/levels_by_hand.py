"""Trees whose scores are written down, and scorers that read them."""

import numpy as np
import numpy.typing as npt

from beamtree.diagnostics.levels import LevelPlan
from beamtree.diagnostics.node_scores import Occupied
from beamtree.retrieval.beam import ScoreNodes
from beamtree.tree.item_tree import ItemTree

Levels = list[npt.NDArray[np.float64]]


def scorer(levels: Levels) -> ScoreNodes:
    """Scores of levels 1, 2, ... as given."""
    return lambda level, nodes: levels[level - 1][nodes].astype(np.float32)


def plan_for(
    tree: ItemTree, *, negatives: int = 1, beam_width: int = 2, exact_nodes: int = 2**14, draws: int = 512
) -> LevelPlan:
    counts = np.full(tree.height, negatives, dtype=np.int64)
    return LevelPlan(Occupied(tree), counts, beam_width, exact_nodes=exact_nodes, draws=draws)


def sums_of_children(leaf_scores: npt.NDArray[np.float64], *, tree: ItemTree) -> Levels:
    """Scores that obey exp(o_parent) = c_level * sum of exp(o_child), with another c on every level."""
    levels = [leaf_scores]
    for level in range(tree.height - 1, 0, -1):
        first, _ = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
        levels.append(np.logaddexp.reduceat(levels[-1], first) + 0.3 * level)
    return levels[::-1]


def random_leaf_scores(tree: ItemTree, *, seed: int) -> npt.NDArray[np.float64]:
    scores = np.random.default_rng(seed).normal(0.0, 2.0, size=tree.num_leaves)
    return np.where(tree.item_at_leaf >= 0, scores, -np.inf)
