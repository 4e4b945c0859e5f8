"""Where tables start: items near those that the same users chose, every node amid the items below it.

With such a start a leaf that is seldom a target scores like its neighbours from the first step on, not like noise.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from beamtree.model.preference import TABLE_SCALE, PreferenceModel
from beamtree.tree.item_tree import ItemTree

NOISE = 0.1
"""How much of the random start stays, so that no two rows are equal."""


@torch.no_grad()
def start_near(table: Tensor, vectors: Tensor) -> None:
    """Move a table of random rows to these vectors, of the same shape."""
    table.mul_(NOISE).add_(vectors.to(table))


def start_from_items(model: PreferenceModel, tree: ItemTree, vectors: npt.NDArray[np.float32]) -> None:
    """Move a fresh model's tables to the items' unit vectors (items, size) and to their means below each node.

    They get the length that the random rows had.
    """
    items = torch.from_numpy(vectors * np.float32(TABLE_SCALE * vectors.shape[1] ** 0.5))
    start_near(model.node_table, node_means(tree, items))
    if model.item_table is not None:
        start_near(model.item_table, items)


def node_means(tree: ItemTree, items: Tensor) -> Tensor:
    """The mean of the vectors (items, size) of the items below each node of the tree, 0 where there is none."""
    first_leaf = int(tree.level_offsets[tree.height])
    means = torch.zeros(tree.num_nodes, items.shape[1])
    means[first_leaf + torch.from_numpy(tree.leaf_of_item.astype(np.int64))] = items
    has_item = torch.from_numpy(tree.item_at_leaf >= 0).to(means.dtype)
    for level in range(tree.height):
        rows = slice(int(tree.level_offsets[level]), int(tree.level_offsets[level + 1]))
        above = torch.from_numpy(tree.ancestors(np.arange(tree.num_leaves), level))
        below = torch.zeros(rows.stop - rows.start).index_add_(0, above, has_item)
        means[rows].index_add_(0, above, means[first_leaf:]).div_(below.clamp(min=1.0).unsqueeze(1))
    return means
