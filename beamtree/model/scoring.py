"""The preference network in factored form: what depends on the history alone is computed once per (history, level).

W1 [a; a*w; w] + b = (W_a a + b) + (W_p diag(a) + W_w) w, and the first layer of the MLP is linear in the attention
weights. The result equals `PreferenceModel.forward` within rounding, at about a third of its arithmetic.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from beamtree.model.preference import PreferenceModel
from beamtree.tree.item_tree import ItemTree

INTERMEDIATES_AT_A_TIME = 2**26
"""Numbers inside the attention unit (rows x nodes x positions x hidden) that are in memory together: 256 MB."""


@dataclass(frozen=True)
class PreparedHistory:
    """All that scoring needs to know of a batch of histories on one level each.

    attention_bias: (rows, positions, hidden); attention_matrix: (rows, positions, hidden, size);
    interest: (rows, positions, width), the first layer's answer to each position; zero for padding.
    """

    attention_bias: Tensor
    attention_matrix: Tensor
    interest: Tensor


def prepare_history(model: PreferenceModel, history: Tensor, *, present: Tensor) -> PreparedHistory:
    """Prepare histories (rows, positions, size); present: (rows, positions), False for padding."""
    size = history.shape[-1]
    of_item, of_product, of_node = model.attention.hidden.weight.split(size, dim=1)
    window_of_position = torch.repeat_interleave(
        torch.arange(len(model.windows), device=history.device), torch.tensor(model.windows, device=history.device)
    )
    per_window = model.mlp.linear(0).weight[:, : len(model.windows) * size].unflatten(1, (-1, size))
    interest = torch.einsum("rkd,okd->rko", history, per_window[:, window_of_position])
    return PreparedHistory(
        attention_bias=history @ of_item.T + model.attention.hidden.bias,
        attention_matrix=of_product * history.unsqueeze(2) + of_node,
        interest=interest * present.unsqueeze(-1),
    )


def score_nodes(
    model: PreferenceModel,
    prepared: PreparedHistory,
    nodes: Tensor,
    *,
    candidates: Tensor | None = None,
) -> Tensor:
    """Scores (rows, columns) of nodes (rows, columns, size); absent candidates score -inf."""
    return model.score_first_layer(_first_layer(model, prepared, nodes), candidates=candidates)


def first_layer_in_blocks(model: PreferenceModel, history: Tensor, nodes: Tensor, *, present: Tensor) -> Tensor:
    """The first layer (rows, columns, width) before its normalisation, for histories and nodes of the same rows.

    Where the intermediates of all rows would be large, they are computed in blocks, and again on the way back.
    """
    rows, columns, _ = nodes.shape
    block = max(1, INTERMEDIATES_AT_A_TIME // (columns * history.shape[1] * model.attention.hidden.out_features))

    def of_block(history: Tensor, nodes: Tensor, present: Tensor) -> Tensor:
        return _first_layer(model, prepare_history(model, history, present=present), nodes)

    if rows <= block:
        return of_block(history, nodes, present)
    parts = zip(history.split(block), nodes.split(block), present.split(block), strict=True)
    return torch.cat([checkpoint(of_block, *part, use_reentrant=False, preserve_rng_state=False) for part in parts])


def _first_layer(model: PreferenceModel, prepared: PreparedHistory, nodes: Tensor) -> Tensor:
    rows, positions, hidden, size = prepared.attention_matrix.shape
    flat_matrix = prepared.attention_matrix.reshape(rows, positions * hidden, size)
    sums = torch.bmm(nodes, flat_matrix.transpose(1, 2)).unflatten(2, (positions, hidden))
    weights = model.attention.weigh(sums + prepared.attention_bias.unsqueeze(1))
    of_node = model.mlp.linear(0).weight[:, -size:]
    return torch.bmm(weights, prepared.interest) + nodes @ of_node.T + model.mlp.linear(0).bias


class ReferenceScorer:
    """Scores nodes of any level for one history with the plain network: the judge of every faster search."""

    def __init__(self, model: PreferenceModel, tree: ItemTree, *, history: npt.NDArray[np.int32]) -> None:
        self._model = model
        self._tree = tree
        self._history = history

    @torch.no_grad()
    def __call__(self, level: int, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Scores (n,) of the nodes (n,) of a level."""
        model, device = self._model, self._model.node_table.device
        history_rows = history_table_rows(model, self._tree, items=self._history, level=level)
        history = model.history_table[torch.from_numpy(np.maximum(history_rows, 0)).to(device)]
        node_rows = torch.from_numpy(nodes + self._tree.level_offsets[level]).to(device)
        present = torch.from_numpy(history_rows >= 0).to(device)
        scores = model(history[None], model.node_table[node_rows][None], present=present[None])
        result: npt.NDArray[np.float32] = scores[0].cpu().numpy()
        return result


def history_table_rows(
    model: PreferenceModel, tree: ItemTree, *, items: npt.NDArray[np.int32], level: int
) -> npt.NDArray[np.int64]:
    """Rows of the history table for history items when nodes of `level` are scored; -1 stays -1."""
    if model.item_table is not None:
        return items.astype(np.int64)
    ancestors = tree.item_ancestors(items, level)
    return np.where(ancestors >= 0, ancestors + tree.level_offsets[level], -1)
