"""Where new items go: down the tree to the leaf that is most like them, then to the vacant leaf nearest to it.

The descent keeps a few nodes per level, for many items at once: O(log n) vectors are read per item. The nearest vacant
leaf is the one with the deepest common ancestor, and among those the one with the fewest leaves in between. Any leaf
that shares a node with another lies in the node's stretch of leaves, so one of the next vacant leaves to the left and
to the right is it.
"""

from bisect import bisect_left

import numpy as np

from beamtree.retrieval.beam import first_searched_level
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, AnyArray, BoolArray, Float32Array, Int64Array

BEAM_WIDTH = 8
ITEMS_AT_A_TIME = 512
"""New items whose candidates' vectors are in memory together: they fit the cache."""


def most_similar_leaves(tree: ItemTree, node_table: AnyArray, vectors: Float32Array) -> Int64Array:
    """The leaf that each of some vectors (n, width) leads to, one with an item: (n,).

    node_table: (nodes, width). On every level those nodes are kept whose vectors have the highest cosine.
    """
    start = first_searched_level(tree, beam_width=BEAM_WIDTH)
    held = [held_nodes(tree, level) for level in range(tree.height + 1)]
    blocks = range(0, len(vectors), ITEMS_AT_A_TIME)
    found = [_descend(tree, node_table, vectors[first : first + ITEMS_AT_A_TIME], start, held) for first in blocks]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def nearest_vacant_leaves(tree: ItemTree, wanted: Int64Array) -> Int64Array:
    """A vacant leaf of its own for each wanted leaf (n,), in their order; there are enough of them."""
    vacant = np.flatnonzero(tree.placement == NOTHING).tolist()
    on_the_right = list(range(len(vacant) + 1))  # the next free place from here on, path-compressed
    on_the_left = list(range(len(vacant) + 1))  # one more than the next free place before here
    levels = np.arange(tree.height, dtype=np.int64)
    chosen = np.empty(len(wanted), dtype=np.int64)
    for number, leaf in enumerate(wanted.tolist()):
        place = bisect_left(vacant, leaf)
        right, left = _find(on_the_right, place), _find(on_the_left, place) - 1
        candidates = [at for at in (left, right) if 0 <= at < len(vacant)]
        if len(candidates) == 2:
            paths = tree.ancestors(np.array([[leaf], [vacant[left]], [vacant[right]]]), levels)
            shared = (paths[1:] == paths[0]).sum(axis=1).tolist()
            gaps = [leaf - vacant[left], vacant[right] - leaf]
            taken = min(range(2), key=lambda side: (-shared[side], gaps[side]))
            candidates = [candidates[taken]]
        [at] = candidates
        on_the_right[at], on_the_left[at + 1] = at + 1, at
        chosen[number] = vacant[at]
    return chosen


def held_nodes(tree: ItemTree, level: int) -> BoolArray:
    """Whether any item, removed or not, stands below each node of a level: (nodes of the level,)."""
    held = np.zeros(tree.level_sizes[level], dtype=np.bool_)
    held[tree.ancestors(tree.leaf_of_item, level)] = True
    return held


def _descend(
    tree: ItemTree, node_table: AnyArray, vectors: Float32Array, level: int, held: list[BoolArray]
) -> Int64Array:
    every = np.arange(tree.level_sizes[level], dtype=np.int64)
    nodes = np.broadcast_to(every, (len(vectors), len(every)))
    while True:
        rows = node_table[tree.level_offsets[level] + np.maximum(nodes, 0)].astype(np.float32, copy=False)
        lengths = np.sqrt(np.einsum("icd,icd->ic", rows, rows))
        cosines = np.einsum("icd,id->ic", rows, vectors) / np.maximum(lengths, 1e-12)
        cosines[(nodes < 0) | ~held[level][np.maximum(nodes, 0)]] = -np.inf
        if level == tree.height:
            best: Int64Array = np.take_along_axis(nodes, np.argmax(cosines, axis=1)[:, None], axis=1)[:, 0]
            return best
        if nodes.shape[1] > BEAM_WIDTH:
            kept = np.argpartition(-cosines, BEAM_WIDTH - 1, axis=1)[:, :BEAM_WIDTH]
            nodes, cosines = np.take_along_axis(nodes, kept, axis=1), np.take_along_axis(cosines, kept, axis=1)
        first, end = tree.child_ranges(np.maximum(nodes, 0), level)
        children = first[..., None] + np.arange(tree.branching)
        is_child = (children < end[..., None]) & np.isfinite(cosines)[..., None]
        nodes = np.where(is_child, children, NOTHING).reshape(len(vectors), -1)
        level += 1


def _find(next_free: list[int], place: int) -> int:
    """The end of a chain, which is shortened on the way."""
    end = place
    while next_free[end] != end:
        end = next_free[end]
    while next_free[place] != end:
        next_free[place], place = end, next_free[place]
    return end
