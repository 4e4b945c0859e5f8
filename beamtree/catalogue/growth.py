"""More leaves for a trained tree: no item changes its ancestors, and every answer stays what it was.

A tree of height H whose leaf level is not full, C < B^H, gets all of its B^H leaves: each node of level H - 1 then has
B of them, at least as many as before, so that its leaves stay below it, in their order. A tree with C = B^H leaves gets
one more level: leaf p becomes node p of level H, with the same vector, and its item moves to the first leaf below,
p * B, with a copy of that vector. The number of leaves grows by a factor of B, so that a growth costs O(1) per item.

One answer can differ: where memory counts own repeats against an item (a weight below 0) and seen items may be
returned, the new inner node above such an item is not held back as its leaf is, so that it may take a place in a beam.
"""

from dataclasses import dataclass, replace

import numpy as np

from beamtree.artefact import Artefact
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, AnyArray, Int64Array

NODE_TABLES = ("attention/node_table", "tower/node_table")
"""Arrays of a model with a row for each node of its tree."""
GATES = "memory/gates"


@dataclass(frozen=True, eq=False)
class Growth:
    """A larger tree with the same items.

    kept_rows: the first so many rows of a table over all nodes stay where they are. leaves (old leaves,): the new leaf
    of each old one; all other leaves are vacant. adds_level: whether the leaves are one level further down.
    """

    old: ItemTree
    tree: ItemTree
    kept_rows: int
    leaves: Int64Array
    adds_level: bool

    def rows(self, table: AnyArray) -> AnyArray:
        """A table (old nodes, size) over the nodes of the larger tree, zero on the new leaves."""
        grown = np.zeros((self.tree.num_nodes, table.shape[1]), dtype=table.dtype)
        grown[: self.kept_rows] = table[: self.kept_rows]
        grown[self.tree.level_offsets[-2] + self.leaves] = table[self.old.level_offsets[-2] :]
        return grown


def grow(tree: ItemTree) -> Growth:
    """The next larger tree; InputError where leaves could not be numbered any more."""
    branching, full = tree.branching, tree.branching**tree.height
    old_leaves = np.arange(tree.num_leaves, dtype=np.int64)
    if tree.num_leaves == full:
        leaves, num_leaves, kept_rows = old_leaves * branching, full * branching, tree.num_nodes
    else:
        parents = tree.ancestors(old_leaves, tree.height - 1)
        first, _ = tree.leaf_ranges(parents, tree.height - 1)
        leaves, num_leaves = parents * branching + old_leaves - first, full
        kept_rows = int(tree.level_offsets[tree.height])
    placement = np.full(num_leaves, NOTHING, dtype=np.int32)
    placement[leaves] = tree.placement
    grown = ItemTree(branching, placement, removed=tree.removed)
    return Growth(tree, grown, kept_rows=kept_rows, leaves=leaves, adds_level=grown.height > tree.height)


def grow_model(artefact: Artefact) -> Artefact:
    """The same model on the next larger tree.

    Whatever has an entry for each level follows: memory's gates, and how many of the last levels attention scores.
    """
    growth = grow(artefact.tree)
    weights = dict(artefact.weights)
    for name in NODE_TABLES:
        if name in weights:
            weights[name] = growth.rows(weights[name])
    config = artefact.config
    if growth.adds_level:
        if GATES in weights:
            weights[GATES] = np.concatenate([weights[GATES], weights[GATES][-1:]])
        if config.model.attention_levels is not None:
            levels = {"attention_levels": config.model.attention_levels + 1}
            config = config.model_copy(update={"model": config.model.model_copy(update=levels)})
    return replace(artefact, tree=growth.tree, weights=weights, config=config)
