"""Vectors of inner nodes that approximate the best leaf below, so that a beam search finds the exact top k.

A beam keeps the right nodes if each node scores like the best leaf below it, as in a max-heap. If a leaf's score is the
inner product of its vector with the encoded history e, no vector of an inner node gives that maximum for every e, but
the least-squares fit over many histories has a closed form:

    v_n = m_n + (E'E + ridge)^-1 E' (max over the leaves l below n of E v_l  -  E m_n)

with one encoded history in each row of E and the mean m_n of the leaf vectors below n. There are no training steps, so
a tree with another placement of the items gets its vectors in seconds.
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
    means = node_means(tree, item_vectors)
    return subtree_vectors(item_vectors, expectations, tree, level=0, node=0, means=means, on_step=on_step)


def subtree_vectors(
    item_vectors: Float32Array,
    expectations: Float32Array,
    tree: ItemTree,
    *,
    level: int,
    node: int,
    means: Float32Array,
    on_step: Callable[[], None] = lambda: None,
) -> Float32Array:
    """As `inner_vectors`, for one node of a level and the inner nodes below it, (nodes, width), level by level.

    means: (nodes of the tree, width), see `node_means`.
    """
    levels = range(level, tree.height)
    bounds = [nodes_below(tree, node, level, deeper) for deeper in (*levels, tree.height)]
    rows = np.concatenate([tree.level_offsets[deeper] + np.arange(*bounds[deeper - level]) for deeper in levels])
    own_means: Float32Array = means[rows]
    first_leaf, end_leaf = bounds[-1]
    if not len(expectations):
        return own_means
    items = tree.item_at_leaf[first_leaf:end_leaf]
    leaf_vectors, is_vacant = item_vectors[np.maximum(items, 0)], items == NOTHING
    missed = np.zeros(own_means.shape, dtype=np.float32)
    starts = np.concatenate([[0], np.cumsum([end - first for first, end in bounds[:-1]])])
    at_a_time = max(1, SCORES_AT_A_TIME // len(items))
    for first in range(0, len(expectations), at_a_time):
        on_step()
        some = expectations[first : first + at_a_time]
        best = leaf_vectors @ some.T
        best[is_vacant] = -np.inf
        for place in reversed(range(len(levels))):
            best = _best_child(best, tree, level + place, nodes=bounds[place], first_child=bounds[place + 1][0])
            own = slice(starts[place], starts[place + 1])
            short = best - own_means[own] @ some.T
            missed[own] += np.where(np.isfinite(short), short, 0.0) @ some
    width = item_vectors.shape[1]
    gram = expectations.T.astype(np.float64) @ expectations
    ridge = RIDGE * np.trace(gram) / width * np.eye(width)
    correction: Float32Array = np.linalg.solve(gram + ridge, missed.T.astype(np.float64)).T.astype(np.float32)
    return np.asarray(own_means + correction)


def nodes_below(tree: ItemTree, node: int, level: int, deeper: int) -> tuple[int, int]:
    """The nodes of a deeper level below a node of a level, or itself, as (first, end) with the end left out."""
    if deeper == tree.height:
        first, end = tree.leaf_ranges(node, level)
        return int(first), int(end)
    below = tree.branching ** (deeper - level)
    return node * below, (node + 1) * below


def _best_child(
    scores: Float32Array, tree: ItemTree, level: int, *, nodes: tuple[int, int], first_child: int
) -> Float32Array:
    """The maximum over the children of each of some nodes of a level, from scores (children, histories).

    nodes: (first, end); first_child: the node of the next level whose scores come first. Row by row, which is several
    times faster than a reduction over ranges of rows.
    """
    first, end = (bound - first_child for bound in tree.child_ranges(np.arange(*nodes), level))
    best = scores[first]
    for place in range(1, tree.branching):
        np.maximum(best, scores[np.minimum(first + place, end - 1)], out=best)
    return best
