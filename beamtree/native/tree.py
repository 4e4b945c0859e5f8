"""Trees as the kernels read them."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from beamtree.native import _kernels
from beamtree.tree.item_tree import ItemTree

_kernel_trees: WeakKeyDictionary[ItemTree, _kernels.Tree] = WeakKeyDictionary()


def kernel_tree(tree: ItemTree) -> _kernels.Tree:
    """The kernels' view of a tree, cached: every training step needs that of the same tree."""
    if tree not in _kernel_trees:
        _kernel_trees[tree] = _kernels.Tree(tree.branching, tree.item_at_leaf, tree.leaf_of_item)
    return _kernel_trees[tree]
