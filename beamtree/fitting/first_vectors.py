"""Where the tables start: items near those that the same users chose, every node amid the items below it.

With such a start a leaf that is seldom a target scores like its neighbours from the first step on, not like noise.
"""

import numpy as np
import numpy.typing as npt
import torch

from beamtree.model.preference import TABLE_SCALE, PreferenceModel
from beamtree.tree.item_tree import ItemTree

NOISE = 0.1
"""How much of the random start stays, so that no two rows are equal."""


@torch.no_grad()
def start_from_items(model: PreferenceModel, tree: ItemTree, vectors: npt.NDArray[np.float32]) -> None:
    """Move a fresh model's tables to the unit vectors (items, size) and to their means below each node.

    They get the length that the random rows had.
    """
    items = torch.from_numpy(vectors * np.float32(TABLE_SCALE * vectors.shape[1] ** 0.5))
    first_leaf = int(tree.level_offsets[tree.height])
    nodes = torch.zeros_like(model.node_table)
    nodes[first_leaf + torch.from_numpy(tree.leaf_of_item.astype(np.int64))] = items
    occupied = torch.from_numpy(tree.item_at_leaf >= 0).to(items.dtype)
    for level in range(tree.height):
        rows = slice(int(tree.level_offsets[level]), int(tree.level_offsets[level + 1]))
        above = torch.from_numpy(tree.ancestors(np.arange(tree.num_leaves), level))
        count = torch.zeros(rows.stop - rows.start).index_add_(0, above, occupied)
        nodes[rows].index_add_(0, above, nodes[first_leaf:]).div_(count.clamp(min=1.0).unsqueeze(1))
    model.node_table.mul_(NOISE).add_(nodes)
    if model.item_table is not None:
        model.item_table.mul_(NOISE).add_(items)
