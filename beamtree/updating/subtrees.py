"""The tree re-placed in part: where vectors have moved, the items of a subtree may stand in a better order.

How well a subtree leads to an item i below it for a request u is the likelihood of the way from its root down to i,
where each step is a softmax over the children of a node:

    log p(i | u)  =  sum over the nodes n on the way of  <e(u), v_n> - log sum over s of exp <e(u), v_s>

with s over n and its siblings.

Learning on moves the vectors; the placement stays. Subtrees whose mean log-likelihood has fallen are clustered anew by
the present vectors, and keep the new order where it raises that mean. Nothing outside of them changes: the nodes above
have the same items below them, and therefore the same vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import HeldOut, Split
from beamtree.evaluation.protocol import held_out_requests
from beamtree.model.embedding_init import node_means
from beamtree.model.guide import nodes_below, subtree_vectors
from beamtree.training.randomness import numpy_generator
from beamtree.tree.build import clustering_order
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, AnyArray, Float32Array, Float64Array, Int32Array, Int64Array

SUBTREE_LEAVES = 256
"""A subtree has at most so many leaves."""
FEWEST_INSTANCES = 20
"""Targets below a subtree from which on its likelihood says something."""
MOST_INSTANCES = 4096
"""New targets that the likelihood is measured on: a second or two of encoding."""
FEWEST_ITEMS = 3
"""Two items have one order."""


@dataclass(frozen=True, eq=False)
class PlacedVectors:
    """A tree, and the tower's table over its nodes (nodes, width)."""

    tree: ItemTree
    node_table: AnyArray

    @property
    def item_vectors(self) -> Float32Array:
        """The vector of each item (items, width)."""
        return np.asarray(self.node_table[self.tree.level_offsets[self.tree.height] + self.tree.leaf_of_item])


@dataclass(frozen=True, eq=False)
class NewTargets:
    """What people went on to do in the new rows: requests, and the item (requests,) that each was followed by."""

    requests: Requests
    items: Int32Array

    @classmethod
    def sample(
        cls, dataset: Dataset, split: Split, *, known_end: Int64Array, tree: ItemTree, seed: int
    ) -> "NewTargets":
        """Some of the new rows that are learned from, of items that may be returned and with something before them.

        known_end: (users,), where the new rows of each user begin.
        """
        sequences = dataset.sequences
        users = np.repeat(np.arange(len(sequences)), sequences.lengths)
        places = np.arange(len(users))
        is_target = (places >= known_end[users]) & (places < split.train.end[users])
        is_target &= (places > sequences.offsets[users]) & ~np.isin(sequences.items, tree.removed)
        if sequences.weights is not None:
            is_target &= sequences.weights > 0.0
        shuffled = numpy_generator(seed, "new targets").permutation(np.flatnonzero(is_target))
        chosen = np.sort(shuffled[:MOST_INSTANCES])
        asked = users[chosen].astype(np.int32)
        rows = HeldOut(asked, sequences.offsets[asked], chosen, chosen, chosen + 1)
        return cls(held_out_requests(dataset, rows, exclude_seen=False), sequences.items[chosen])


def subtree_level(tree: ItemTree) -> int:
    """The level of the roots of subtrees: the first below the root whose nodes have few enough leaves."""
    sizes = tree.level_sizes[1:] * SUBTREE_LEAVES
    return 1 + int(np.argmax(sizes >= tree.num_leaves))


def path_log_likelihoods(
    placed: PlacedVectors, expectations: Float32Array, items: Int32Array, *, level: int
) -> Float64Array:
    """Log-likelihoods (n,) of the ways from the nodes of a level down to items (n,), none of them removed.

    expectations: (n, width), what is expected of each.
    """
    tree = placed.tree
    total = np.zeros(len(items), dtype=np.float64)
    every = np.arange(len(items))
    for upper in range(level, tree.height):
        first, end = tree.child_ranges(tree.item_ancestors(items, upper), upper)
        children = np.minimum(first[:, None] + np.arange(tree.branching), end[:, None] - 1)
        vectors = placed.node_table[tree.level_offsets[upper + 1] + children]
        logits = np.einsum("ncw,nw->nc", vectors, expectations).astype(np.float64)
        is_child = first[:, None] + np.arange(tree.branching) < end[:, None]
        logits[~(is_child & tree.occupied(upper + 1)[children])] = -np.inf
        chosen = logits[every, tree.item_ancestors(items, upper + 1) - first]
        highest = logits.max(axis=1)
        total += chosen - highest - np.log(np.exp(logits - highest[:, None]).sum(axis=1))
    return total


def fallen_subtrees(roots: Int64Array, *, before: Float64Array, after: Float64Array) -> Int64Array:
    """The roots whose mean log-likelihood has fallen, of those with enough instances, rising.

    roots: (n,), the one above each target; before, after: (n,).
    """
    if not len(roots):
        return np.empty(0, dtype=np.int64)
    count = np.bincount(roots)
    change = np.bincount(roots, weights=after - before)
    return np.flatnonzero((count >= FEWEST_INSTANCES) & (change < 0.0))


def re_place(
    placed: PlacedVectors, roots: Sequence[int], *, level: int, expectations: Float32Array, seed: int
) -> PlacedVectors:
    """The same items with another order below some nodes of a level, by clustering; the leaves' vectors go along.

    expectations: (histories, width), which the inner nodes below are made for. Vacant leaves are spread evenly.
    """
    tree, vectors = placed.tree, placed.item_vectors
    placement = tree.placement
    for root in roots:
        first, end = nodes_below(tree, root, level, tree.height)
        items = placement[first:end][placement[first:end] != NOTHING]
        if len(items) < FEWEST_ITEMS:
            continue
        generator = numpy_generator(seed, "subtree", root)
        order = clustering_order(vectors[items], branching=tree.branching, generator=generator)
        placement[first:end] = NOTHING
        placement[first + np.arange(len(items)) * (end - first) // len(items)] = items[order]
    moved = ItemTree(tree.branching, placement, removed=tree.removed)
    table = np.array(placed.node_table)
    for root in roots:
        table[_rows_below(moved, root, level=level, deepest=moved.height)] = 0.0
    table[tree.level_offsets[tree.height] + moved.leaf_of_item] = vectors
    means = node_means(moved, vectors)
    for root in roots:
        inner = subtree_vectors(vectors, expectations, moved, level=level, node=root, means=means)
        table[_rows_below(moved, root, level=level, deepest=moved.height - 1)] = inner[1:]
    return PlacedVectors(moved, table)


def take_subtrees(placed: PlacedVectors, other: PlacedVectors, roots: Sequence[int], *, level: int) -> PlacedVectors:
    """As `placed`, with everything below some nodes of a level as in `other`, which has the same items below each."""
    tree = placed.tree
    placement, table, from_other = tree.placement, np.array(placed.node_table), other.tree.placement
    for root in roots:
        first, end = nodes_below(tree, root, level, tree.height)
        placement[first:end] = from_other[first:end]
        rows = _rows_below(tree, root, level=level, deepest=tree.height)
        table[rows] = other.node_table[rows]
    return PlacedVectors(ItemTree(tree.branching, placement, removed=tree.removed), table)


def _rows_below(tree: ItemTree, root: int, *, level: int, deepest: int) -> Int64Array:
    """Rows in a table over all nodes of those below a node of a level, itself left out, down to a level."""
    rows = [np.empty(0, dtype=np.int64)]
    for lower in range(level + 1, deepest + 1):
        rows.append(tree.level_offsets[lower] + np.arange(*nodes_below(tree, root, level, lower)))
    return np.concatenate(rows)
