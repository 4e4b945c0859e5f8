"""Rectified labels, DTR(T-RL): on which levels a target counts as positive (Eq. 13), and how much (Eq. 15).

A target counts on a level when no leaf below its ancestor there has a strictly higher estimated probability. Subtrees
nest, so this is a step function: one small number per instance, the first level at which the target wins.
"""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from beamtree.tree.item_tree import VACANT, ItemTree

Int8Array = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]
Labels = npt.NDArray[Any]
"""What is kept of each instance's labels: a level, a bit mask, or a number per level."""
Rectification = Literal["subtree", "child", "normalised"]


def scores_by_leaf(item_scores: Float32Array, tree: ItemTree) -> Float32Array:
    """Estimated scores (instances, items) in the order of the leaves (instances, leaves); vacant leaves get -inf."""
    by_leaf = item_scores[:, tree.item_at_leaf]
    by_leaf[:, tree.item_at_leaf == VACANT] = -np.inf
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


def winning_child_levels(leaf_scores: Float32Array, target_leaves: Int64Array, *, tree: ItemTree) -> Int32Array:
    """The laxer test of the published code, as a bit mask (instances,): bit j - 1 stands for level j.

    A level counts when, among the children of the target's ancestor there, none has a better best leaf than the child
    on the target's path. This does not nest. The leaf level always counts.
    """
    rows = np.arange(len(target_leaves))
    best_below = leaf_scores
    mask = np.full(len(target_leaves), 1 << (tree.height - 1), dtype=np.int32)
    for level in range(tree.height - 1, 0, -1):
        first, _ = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
        best_of_node = np.maximum.reduceat(best_below, first, axis=1)
        on_path = best_below[rows, tree.ancestors(target_leaves, level + 1)]
        wins = on_path >= best_of_node[rows, tree.ancestors(target_leaves, level)]
        mask[wins] |= 1 << (level - 1)
        best_below = best_of_node
    return mask


def normalised_labels(leaf_scores: Float32Array, target_leaves: Int64Array, *, tree: ItemTree) -> Float32Array:
    """The labels of the subtree test divided by what they sum up to in expectation on their level (Eq. 15).

    The rectified label of a node is expected to be the highest probability below it. Divided by the sum of these over
    the level's nodes, the expected labels of a level add up to 1. leaf_scores are logits: probabilities are their
    softmax. (instances, height); at the leaves always 1.
    """
    best_below = np.exp(leaf_scores - leaf_scores.max(axis=1, keepdims=True))
    every_leaf = best_below.sum(axis=1)
    winning_level = first_winning_level(leaf_scores, target_leaves, tree=tree)
    labels = level_weights(winning_level, rectification="subtree", height=tree.height)
    for level in range(tree.height - 1, 0, -1):
        first, _ = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
        best_below = np.maximum.reduceat(best_below, first, axis=1)
        labels[:, level - 1] *= every_leaf / best_below.sum(axis=1)
    return labels


def level_weights(labels: Labels, *, rectification: Rectification, height: int) -> Float32Array:
    """The label of each level for each instance: (instances, height), from what the functions above gave."""
    every_level = np.arange(1, height + 1)
    match rectification:
        case "subtree":
            return (every_level >= labels[:, None]).astype(np.float32)
        case "child":
            return ((labels[:, None] >> (every_level - 1)) & 1).astype(np.float32)
        case "normalised":
            return labels
