"""Scores of items for candidate nodes of a new tree, summed over their training instances."""

from __future__ import annotations

from beamtree.native import _kernels
from beamtree.native.attention import AttentionArrays
from beamtree.native.tree import kernel_tree
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array, Int32Array, Int64Array


def add_candidate_scores(
    attention: AttentionArrays,
    sums: AnyArray,
    *,
    tree: ItemTree,
    histories: Int32Array,
    targets: Int32Array,
    group_of_item: Int64Array,
    group_level: int,
    candidate_level: int,
    layer_offsets: Float32Array | None = None,
) -> None:
    """Add to sums[target] the log-softmax over the candidate nodes, for each instance (Score of the paper).

    tree: the old one, through which histories (instances, positions) are read; targets: (instances,). The candidates
    of an item are the nodes of candidate_level below its group, node group_of_item[item] of group_level; -1 leaves it
    out. layer_offsets: (instances, first layer's width), as for `learn_batch`.
    sums: (items, candidates), float32 or float64. Columns behind the last candidate of a group stay as they are.
    """
    _kernels.relearn(
        attention.float32_kernel,
        kernel_tree(tree),
        sums,
        histories=histories,
        targets=targets,
        groups=group_of_item,
        layer_offsets=layer_offsets,
        upper=group_level,
        lower=candidate_level,
    )
