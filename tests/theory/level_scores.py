"""Scores of whole levels, level 1 first, made from the leaves upwards or from the root downwards."""

import numpy as np
import numpy.typing as npt

from beamtree.tree.item_tree import ItemTree

Float64Array = npt.NDArray[np.float64]


def parents_from_children(leaf_scores: Float64Array, *, tree: ItemTree, combine: np.ufunc) -> list[Float64Array]:
    """Every node's score is what `combine` makes of its children's."""
    levels = [leaf_scores]
    for level in range(tree.height - 1, 0, -1):
        first, _ = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
        levels.insert(0, combine.reduceat(levels[0], first))
    return levels


def leaves_with_clear_winners(tree: ItemTree, *, gap: float, generator: np.random.Generator) -> Float64Array:
    """Leaf scores so that in every family the best child is ahead of each other one by `gap` or a little more."""
    scores = np.zeros(1)
    for level in range(tree.height):
        first, end = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
        lost = generator.uniform(gap, gap + 1.0, size=tree.level_sizes[level + 1])
        lost[first + generator.integers(0, end - first)] = 0.0
        scores = np.repeat(scores, end - first) - lost
    return scores
