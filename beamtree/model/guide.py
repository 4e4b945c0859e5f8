"""Vectors of inner nodes that speak for the best leaf below: what lets a beam find what a scan of all leaves would.

A beam keeps the right nodes where each node scores like the best leaf below it, in a max-heap. Where a leaf's score is
the inner product of its vector with what an encoder expects, e, no vector of an inner node gives that maximum for all
e, but the one that comes nearest to it over many histories, in least squares, has a closed form:

    v_n = m_n + (E'E + ridge)^-1 E' (max over the leaves l below n of E v_l  -  E m_n)

with one expectation in each row of E and the mean m_n of the vectors below n. Nothing is learned by steps, and a tree
with the same items in other places gets its vectors in seconds.
"""

from collections.abc import Callable

import numpy as np

from beamtree.model.embedding_init import node_means
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, Float32Array

RIDGE = 1e-2
"""Pull towards the mean, as a share of the mean square of the expectations in a direction."""

SCORES_AT_A_TIME = 2**24
"""Scores (leaves x histories) that are in memory together: 64 MB."""


def inner_vectors(
    item_vectors: Float32Array,
    expectations: Float32Array,
    tree: ItemTree,
    *,
    on_step: Callable[[], None] = lambda: None,
) -> Float32Array:
    """Vectors (inner nodes, width), level by level, for items (items, width) at the leaves of a tree.

    expectations: (histories, width), what is expected after some histories; without any, the means.
    Where all leaves below a node are vacant its vector is zero. on_step: called now and then; it may raise to stop.
    """
    num_inner, width = int(tree.level_offsets[tree.height]), item_vectors.shape[1]
    means = node_means(tree, item_vectors)[:num_inner]
    if not len(expectations):
        return means
    leaf_vectors = item_vectors[np.maximum(tree.item_at_leaf, 0)]
    is_vacant = tree.item_at_leaf == NOTHING
    missed = np.zeros((num_inner, width), dtype=np.float32)
    at_a_time = max(1, SCORES_AT_A_TIME // tree.num_leaves)
    for first in range(0, len(expectations), at_a_time):
        on_step()
        some = expectations[first : first + at_a_time]
        best = leaf_vectors @ some.T
        best[is_vacant] = -np.inf
        for level in reversed(range(tree.height)):
            best = _best_child(best, tree, level)
            rows = slice(int(tree.level_offsets[level]), int(tree.level_offsets[level + 1]))
            short = best - means[rows] @ some.T
            missed[rows] += np.where(np.isfinite(short), short, 0.0) @ some
    gram = expectations.T.astype(np.float64) @ expectations
    ridge = RIDGE * np.trace(gram) / width * np.eye(width)
    correction: Float32Array = np.linalg.solve(gram + ridge, missed.T.astype(np.float64)).T.astype(np.float32)
    return means + correction


def _best_child(scores: Float32Array, tree: ItemTree, level: int) -> Float32Array:
    """The maximum over the children of each node of a level, from scores (children, histories).

    Row by row, which is several times faster than a reduction over ranges of rows.
    """
    first, end = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
    best = scores[first]
    for place in range(1, tree.branching):
        np.maximum(best, scores[np.minimum(first + place, end - 1)], out=best)
    return best
