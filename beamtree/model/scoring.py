"""The first layer of the attention network in factored form: what depends on the history alone is computed once.

W1 [a; a*w; w] + b = (W_a a + b) + (W_p diag(a) + W_w) w, and the first layer of the MLP is linear in the attention
weights. The result equals that of `Attention.forward` within rounding, at about a third of its arithmetic.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from beamtree.model.layers import AttentionUnit

INTERMEDIATES_AT_A_TIME = 2**26
"""Numbers inside the attention unit (rows x nodes x positions x hidden) that are in memory together: 256 MB."""


@dataclass(frozen=True)
class FirstLayer:
    """What turns histories and nodes into the perceptron's first sums.

    linear: from the interests of all windows and the node, in this order; windows: history positions in each.
    """

    unit: AttentionUnit
    linear: nn.Linear
    windows: tuple[int, ...]


@dataclass(frozen=True)
class PreparedHistory:
    """All that scoring needs to know of a batch of histories on one level each.

    attention_bias: (rows, positions, hidden); attention_matrix: (rows, positions, hidden, size);
    interest: (rows, positions, width), the first layer's answer to each position; zero for padding.
    """

    attention_bias: Tensor
    attention_matrix: Tensor
    interest: Tensor


def prepare_history(layer: FirstLayer, history: Tensor, *, present: Tensor) -> PreparedHistory:
    """Prepare histories (rows, positions, size); present: (rows, positions), False for padding."""
    size, num_windows = history.shape[-1], len(layer.windows)
    of_item, of_product, of_node = layer.unit.hidden.weight.split(size, dim=1)
    window_of_position = torch.repeat_interleave(
        torch.arange(num_windows, device=history.device), torch.tensor(layer.windows, device=history.device)
    )
    per_window = layer.linear.weight[:, : num_windows * size].unflatten(1, (-1, size))
    interest = torch.einsum("rkd,okd->rko", history, per_window[:, window_of_position])
    return PreparedHistory(
        attention_bias=history @ of_item.T + layer.unit.hidden.bias,
        attention_matrix=of_product * history.unsqueeze(2) + of_node,
        interest=interest * present.unsqueeze(-1),
    )


def first_layer_in_blocks(layer: FirstLayer, history: Tensor, nodes: Tensor, *, present: Tensor) -> Tensor:
    """The first layer (rows, columns, width) before its normalisation, for histories and nodes of the same rows.

    Where the intermediates of all rows would be large, they are computed in blocks, and again on the way back.
    """
    rows, columns, _ = nodes.shape
    block = max(1, INTERMEDIATES_AT_A_TIME // (columns * history.shape[1] * layer.unit.hidden.out_features))

    def of_block(history: Tensor, nodes: Tensor, present: Tensor) -> Tensor:
        return _first_layer(layer, prepare_history(layer, history, present=present), nodes)

    if rows <= block:
        return of_block(history, nodes, present)
    parts = zip(history.split(block), nodes.split(block), present.split(block), strict=True)
    return torch.cat([checkpoint(of_block, *part, use_reentrant=False, preserve_rng_state=False) for part in parts])


def _first_layer(layer: FirstLayer, prepared: PreparedHistory, nodes: Tensor) -> Tensor:
    rows, positions, hidden, size = prepared.attention_matrix.shape
    flat_matrix = prepared.attention_matrix.reshape(rows, positions * hidden, size)
    sums = torch.bmm(nodes, flat_matrix.transpose(1, 2)).unflatten(2, (positions, hidden))
    weights = layer.unit.weigh(sums + prepared.attention_bias.unsqueeze(1))
    of_node = layer.linear.weight[:, -size:]
    return torch.bmm(weights, prepared.interest) + nodes @ of_node.T + layer.linear.bias
