"""Counted memory as a part of the score in torch: a number for every leaf, and its maximum below every node."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from beamtree.data.requests import Requests
from beamtree.model.memory import POPULAR_ITEMS, Memory
from beamtree.model.part import Part, PreparedPart, ReadRows
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array


class MemoryPart(Part):
    """What a memory says of nodes: for learning beside it on a GPU, and for search where there are no kernels.

    It has nothing to learn. Evidence is dense, so a request costs what the catalogue costs.
    """

    def __init__(self, memory: Memory, tree: ItemTree) -> None:
        super().__init__()
        self._memory = memory
        self._tree = tree
        gates = torch.tensor(memory.gates or (1.0,) * (tree.height + 1), dtype=torch.float32)
        self.register_buffer("gates", gates, persistent=False)

    def prepare(self, requests: Requests, *, read: ReadRows, dropout: torch.Generator | None) -> PreparedPart:  # noqa: ARG002
        """Pool the evidence of each request over the leaves that it may be given."""
        evidence = np.stack([leaf_evidence(self._memory, self._tree, requests, row) for row in range(len(requests))])
        pooled = torch.from_numpy(pool(evidence, self._tree)).to(self.device)
        gates = self.get_buffer("gates")

        def score(levels: Sequence[int], nodes: Tensor) -> Tensor:
            rows = torch.arange(len(pooled), device=nodes.device)[None, :, None]
            return gates[list(levels), None, None] * pooled[rows, nodes.clamp(min=0)]

        return score


def leaf_evidence(memory: Memory, tree: ItemTree, requests: Requests, request: int) -> Float32Array:
    """What the memory says of every leaf (leaves,) for one request; 0 where nothing points or it is not eligible."""
    history, weights = requests.histories.row(request), memory.weights
    latest = history[::-1]
    of_item = np.zeros(tree.num_items, dtype=np.float32)
    for kind in memory.kinds:
        links = kind.links
        for source, weight in kind.sources(history):
            own = slice(links.offsets[source], links.offsets[source + 1])
            of_item[links.items[own]] += np.float32(weight) * links.strengths[own]
    if weights.repeats != 0.0 and len(latest):
        faded = weights.repeat_fade ** np.arange(len(latest))
        repeated = np.bincount(latest, weights=faded, minlength=tree.num_items)
        of_item += memory.returns * (weights.repeats * np.log1p(repeated)).astype(np.float32)
    eligibility = Eligibility.of(requests, tree)
    is_eligible = np.zeros(tree.num_items, dtype=np.bool_)
    is_eligible[tree.item_at_leaf[eligibility.leaves(request)]] = True
    if memory.has_demand:
        popular = memory.most_demanded[is_eligible[memory.most_demanded]][:POPULAR_ITEMS]
        takes_part = of_item > 0.0
        takes_part[popular] = True
        of_item += np.where(takes_part, memory.demand, np.float32(0.0))
    evidence = np.zeros(tree.num_leaves, dtype=np.float32)
    evidence[tree.leaf_of_item] = np.where(is_eligible, of_item, np.float32(0.0))
    return evidence


def pool(evidence: Float32Array, tree: ItemTree) -> Float32Array:
    """The maximum of leaf evidence (requests, leaves) below each node, at least 0 above leaves: (requests, nodes)."""
    pooled = np.empty((len(evidence), tree.num_nodes), dtype=np.float32)
    for level in reversed(range(tree.height + 1)):
        if level < tree.height:
            first_child, _ = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
            evidence = np.maximum(np.maximum.reduceat(evidence, first_child, axis=1), np.float32(0.0))
        pooled[:, tree.level_offsets[level] : tree.level_offsets[level + 1]] = evidence
    return pooled
