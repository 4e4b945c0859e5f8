"""Rectified labels, DTR(T-RL): on which levels a target counts as positive (Eq. 13).

A target counts on a level when no leaf below its ancestor there has a strictly higher estimated probability. Subtrees
nest, so this is a step function: one small number per instance, the first level at which the target wins.
"""

import numpy as np

from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, Float32Array, Int8Array, Int64Array


def scores_by_leaf(item_scores: Float32Array, tree: ItemTree) -> Float32Array:
    """Estimated scores (instances, items) in the order of the leaves (instances, leaves); vacant leaves get -inf."""
    by_leaf = item_scores[:, tree.item_at_leaf]
    by_leaf[:, tree.item_at_leaf == NOTHING] = -np.inf
    return by_leaf


def first_winning_level(leaf_scores: Float32Array, target_leaves: Int64Array, *, tree: ItemTree) -> Int8Array:
    """The first level on which the target wins its whole subtree, 1 to height: (instances,).

    The nearest strictly better leaf on either side decides: the target wins from the first level on that separates it
    from both.
    """
    left, right = _nearest_better(leaf_scores, target_leaves)
    winning_level = np.full(len(target_leaves), tree.height, dtype=np.int8)
    for level in range(tree.height - 1, 0, -1):
        own = tree.ancestors(target_leaves, level)
        wins = (tree.ancestors(np.maximum(left, 0), level) != own) | (left < 0)
        wins &= (tree.ancestors(np.minimum(right, tree.num_leaves - 1), level) != own) | (right == tree.num_leaves)
        winning_level[wins] = level
    return winning_level


def _nearest_better(leaf_scores: Float32Array, target_leaves: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The nearest strictly better leaf on the left of each target, or -1, and on its right, or the number of leaves."""
    num_leaves = leaf_scores.shape[1]
    left, right = np.full(len(target_leaves), -1), np.full(len(target_leaves), num_leaves)
    better = leaf_scores > np.take_along_axis(leaf_scores, target_leaves[:, None], axis=1)
    for row, leaf in enumerate(target_leaves):
        before, after = better[row, :leaf][::-1], better[row, leaf + 1 :]
        if before.any():
            left[row] = leaf - 1 - before.argmax()
        if after.any():
            right[row] = leaf + 1 + after.argmax()
    return left, right


def labels_from(winning_level: Int8Array, *, height: int) -> Float32Array:
    """The label of each level for each instance, (instances, height): 1 from the level on at which the target wins."""
    return (np.arange(1, height + 1) >= winning_level[:, None]).astype(np.float32)
