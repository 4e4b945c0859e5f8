"""How well items fit candidate places in a new tree, summed over their training instances."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamtree.native import _kernels
from beamtree.native.network import float32_kernel, plain
from beamtree.native.search import Model


def add_candidate_scores(
    model: Model,
    sums: NDArray[Any],
    *,
    histories: NDArray[np.int32],
    targets: NDArray[np.int32],
    group_of_item: NDArray[np.int64],
    group_level: int,
    candidate_level: int,
) -> None:
    """Add to sums[target] the log-softmax over the candidate nodes, for each instance (Score of the paper).

    histories: (instances, positions), read through the model's (old) tree; targets: (instances,). The candidates of an
    item are the nodes of candidate_level below its group, node group_of_item[item] of group_level; -1 leaves it out.
    sums: (items, candidates), float32 or float64. Columns behind the last candidate of a group stay as they are.
    """
    _kernels.relearn(
        float32_kernel(model.network),
        model.kernel_tree,
        plain(model.node_table),
        plain(model.item_table),
        histories,
        targets,
        group_of_item,
        group_level,
        candidate_level,
        sums,
    )
