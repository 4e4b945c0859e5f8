"""Embeddings in a tree that was clustered anew: each leaf's goes with its item, inner nodes start from the leaves."""

from beamtree.model.embedding_init import node_means
from beamtree.training.placement import move_leaf_rows
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray


def rebuild_rows(node_table: AnyArray, old: ItemTree, new: ItemTree) -> AnyArray:
    """The table with each item's row at its new leaf, and at each inner node the mean of the items' rows below it."""
    first = new.level_offsets[new.height]
    rebuilt = move_leaf_rows(node_table, old, new)
    rebuilt[:first] = node_means(new, rebuilt[first + new.leaf_of_item])[:first]
    return rebuilt
