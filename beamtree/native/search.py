"""The attention network with its tree and tables, as training and relearning in the kernels take it."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from beamtree.native import _kernels
from beamtree.native.network import Array, Network
from beamtree.tree.item_tree import ItemTree


@dataclass(frozen=True, eq=False)
class Model:
    """Weights, tree and tables, ready for the kernels. The tables are read where they lie, a mapped file included.

    node_table: (nodes, size), float32 or float16. item_table: (items, size), or None where history items are read as
    their ancestors from the node table.
    """

    network: Network
    tree: ItemTree
    node_table: Array
    item_table: Array | None = None
    kernel_tree: _kernels.Tree = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel_tree", kernel_tree(self.tree))


_kernel_trees: WeakKeyDictionary[ItemTree, _kernels.Tree] = WeakKeyDictionary()


def kernel_tree(tree: ItemTree) -> _kernels.Tree:
    """The kernels' view of a tree, made once: every step of training makes a new model of the same tree."""
    if tree not in _kernel_trees:
        _kernel_trees[tree] = _kernels.Tree(tree.branching, tree.item_at_leaf, tree.leaf_of_item)
    return _kernel_trees[tree]
