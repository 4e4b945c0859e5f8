"""The first level on which a target wins its subtree, found by climbing from its leaf until a better one is met.

Where an estimator's scores are inner products, a few of them usually decide: most targets meet a better leaf nearby,
and what lies beyond is never scored. The result is that of `first_winning_level` on the scores of all leaves, but for
scores that only rounding tells apart.
"""

import numpy as np

from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, Float32Array, Int8Array, Int64Array

LEAVES_AT_A_TIME = 1024


def vectors_by_leaf(item_vectors: Float32Array, tree: ItemTree) -> Float32Array:
    """Vectors (items, width) in the order of the leaves; a vacant leaf gets NaN, which is never better."""
    by_leaf = item_vectors[tree.item_at_leaf]
    by_leaf[tree.item_at_leaf == NOTHING] = np.nan
    return by_leaf


def climb(
    expected: Float32Array, leaf_vectors: Float32Array, target_leaves: Int64Array, *, tree: ItemTree
) -> Int8Array:
    """1 to height for each target (instances,); expected: (instances, width), what each history makes likely."""
    levels = np.arange(1, tree.height)
    first, end = tree.leaf_ranges(tree.ancestors(target_leaves[:, None], levels), levels)
    winning = np.full(len(target_leaves), tree.height, dtype=np.int8)
    for row, (leaf, vector) in enumerate(zip(target_leaves, expected, strict=True)):
        own, left, right = leaf_vectors[leaf] @ vector, leaf, leaf + 1
        for level in levels[::-1]:
            outer_left, outer_right = first[row, level - 1], end[row, level - 1]
            if _has_better(leaf_vectors[outer_left:left], vector, own):
                break
            if _has_better(leaf_vectors[right:outer_right], vector, own):
                break
            winning[row], left, right = level, outer_left, outer_right
    return winning


def _has_better(leaf_vectors: Float32Array, vector: Float32Array, own: np.float32) -> bool:
    """Whether any of the leaves is better, in blocks, since one is enough."""
    blocks = range(0, len(leaf_vectors), LEAVES_AT_A_TIME)
    return any((leaf_vectors[first : first + LEAVES_AT_A_TIME] @ vector > own).any() for first in blocks)
