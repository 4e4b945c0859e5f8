"""Scores of items for candidate nodes, for relearning the tree: in torch, and in the kernels."""

import numpy as np
import torch

from beamtree.model.attention import Attention
from beamtree.model.score import Score
from beamtree.training.instances import Batch
from beamtree.training.relearn import AddScores, Stage
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, Float64Array, Int64Array

SCORES_AT_A_TIME = 2**15
"""Scores (instances x candidates) that torch computes together."""


def torch_candidate_scores(score: Score) -> AddScores:
    """The log-softmax over each target's candidates, by any score in torch."""
    tree = score.tree

    @torch.no_grad()
    def add_scores(sums: Float64Array, batch: Batch, node_of_item: Int64Array, stage: Stage) -> None:
        targets = batch.targets[:, 0]
        first, end = _candidate_ranges(tree, node_of_item[targets], stage)
        candidates = first[:, None] + np.arange(sums.shape[1])
        is_candidate = candidates < end[:, None]
        nodes = np.where(is_candidate, candidates + tree.level_offsets[stage.lower], NOTHING)
        block = max(1, SCORES_AT_A_TIME // sums.shape[1])
        for begin in range(0, len(nodes), block):
            rows = slice(begin, begin + block)
            score_nodes = score.prepare(batch.requests.take(rows))
            scores = score_nodes([stage.lower], torch.from_numpy(nodes[rows]).to(score.device)[None])[0]
            log_shares = scores.double().log_softmax(dim=1).cpu().numpy()
            np.add.at(sums, targets[rows], np.where(is_candidate[rows], log_shares, 0.0))

    return add_scores


def native_candidate_scores(attention: Attention) -> AddScores:
    """The same in the kernels, for a score of attention alone."""
    from beamtree.native.relearn import add_candidate_scores
    from beamtree.training.native_learner import attention_arrays

    length = attention.settings.attention_history

    @torch.no_grad()
    def add_scores(sums: Float64Array, batch: Batch, node_of_item: Int64Array, stage: Stage) -> None:
        offsets = None if attention.offset is None else attention.offset.of_requests(batch.requests)
        add_candidate_scores(
            attention_arrays(attention),
            sums,
            tree=attention.tree,
            histories=batch.histories.latest(length),
            targets=np.ascontiguousarray(batch.targets[:, 0]),
            group_of_item=node_of_item,
            group_level=stage.upper,
            candidate_level=stage.lower,
            layer_offsets=None if offsets is None else offsets.numpy(),
        )

    return add_scores


def _candidate_ranges(tree: ItemTree, groups: Int64Array, stage: Stage) -> tuple[Int64Array, Int64Array]:
    first_leaf, end_leaf = tree.leaf_ranges(groups, stage.upper)
    return tree.ancestors(first_leaf, stage.lower), tree.ancestors(end_leaf - 1, stage.lower) + 1
