"""Embeddings initialised from vectors of the items: each item near its vector, each node near the mean below it.

With such a start a leaf that is seldom a target scores like its neighbours from the first step on, not like noise.
"""

import numpy as np
import torch
from torch import Tensor

from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array

NOISE = 0.1
"""How much of the random start stays, so that no two rows are equal."""


@torch.no_grad()
def start_near(table: Tensor, vectors: Float32Array, *, length: float = 1.0) -> None:
    """Move a table of random rows to these vectors, of the same shape, times a length."""
    table.mul_(NOISE).add_(torch.from_numpy(vectors).to(table), alpha=length)


def node_means(tree: ItemTree, vectors: Float32Array) -> Float32Array:
    """The mean of the vectors (items, size) below each node of the tree, over those not zero: (nodes, size)."""
    size = vectors.shape[1]
    sums = np.zeros((tree.num_leaves, size + 1), dtype=np.float32)
    sums[tree.leaf_of_item, :size] = vectors
    sums[tree.leaf_of_item, size] = vectors.any(axis=1)
    means = np.empty((tree.num_nodes, size), dtype=np.float32)
    for level in reversed(range(tree.height + 1)):
        if level < tree.height:
            first_child, _ = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
            sums = np.add.reduceat(sums, first_child)
        rows = slice(tree.level_offsets[level], tree.level_offsets[level + 1])
        means[rows] = sums[:, :size] / np.maximum(sums[:, size:], 1.0)
    return means
