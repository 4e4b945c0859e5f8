"""Scores of items for candidate nodes, for relearning the tree: in torch, and in the kernels."""

import numpy as np
import torch

from beamtree.config import ModelSettings
from beamtree.model.preference import PreferenceModel
from beamtree.model.scoring import INTERMEDIATES_AT_A_TIME, history_table_rows, prepare_history, score_nodes
from beamtree.training.instances import Batch
from beamtree.training.relearn import AddScores, Float64Array, Int64Array, Stage
from beamtree.tree.item_tree import ItemTree


def torch_candidate_scores(model: PreferenceModel, tree: ItemTree) -> AddScores:
    """The log-softmax over each target's candidates, by the model in torch."""

    @torch.no_grad()
    def add_scores(sums: Float64Array, batch: Batch, node_of_item: Int64Array, stage: Stage) -> None:
        first, end = _candidate_ranges(tree, node_of_item[batch.targets], stage)
        candidates = first[:, None] + np.arange(sums.shape[1])
        is_candidate = candidates < end[:, None]
        node_rows = np.where(is_candidate, candidates, first[:, None]) + tree.level_offsets[stage.lower]
        history_rows = history_table_rows(model, tree, items=batch.histories, level=stage.lower)
        device = model.node_table.device
        hidden = model.attention.hidden.out_features
        block = max(1, INTERMEDIATES_AT_A_TIME // (sums.shape[1] * history_rows.shape[1] * hidden))
        for begin in range(0, len(node_rows), block):
            rows = slice(begin, begin + block)
            present = torch.from_numpy(history_rows[rows] >= 0).to(device)
            history = model.history_table[torch.from_numpy(np.maximum(history_rows[rows], 0)).to(device)]
            nodes = model.node_table[torch.from_numpy(node_rows[rows]).to(device)]
            mask = torch.from_numpy(is_candidate[rows]).to(device)
            prepared = prepare_history(model, history, present=present)
            scores = score_nodes(model, prepared, nodes, candidates=mask)
            log_shares = scores.double().log_softmax(dim=1).cpu().numpy()
            np.add.at(sums, batch.targets[rows], np.where(is_candidate[rows], log_shares, 0.0))

    return add_scores


def native_candidate_scores(model: PreferenceModel, tree: ItemTree, *, settings: ModelSettings) -> AddScores:
    """The same in the kernels."""
    from beamtree.native.network import Network
    from beamtree.native.relearn import add_candidate_scores
    from beamtree.native.search import Model

    network = Network.pack(model.state_dict(), windows=settings.windows, normalisation=settings.normalisation)
    kernel_model = Model(network, tree, node_table=model.node_table, item_table=model.item_table)

    def add_scores(sums: Float64Array, batch: Batch, node_of_item: Int64Array, stage: Stage) -> None:
        add_candidate_scores(
            kernel_model,
            sums,
            histories=batch.histories,
            targets=batch.targets,
            group_of_item=node_of_item,
            group_level=stage.upper,
            candidate_level=stage.lower,
        )

    return add_scores


def _candidate_ranges(tree: ItemTree, groups: Int64Array, stage: Stage) -> tuple[Int64Array, Int64Array]:
    first_leaf, end_leaf = tree.leaf_ranges(groups, stage.upper)
    return tree.ancestors(first_leaf, stage.lower), tree.ancestors(end_leaf - 1, stage.lower) + 1
