"""The attention unit in the kernels, with gradients for torch: the most expensive part of scoring nodes, by far.

Losses that the kernels do not know are written in torch; their histories and nodes still meet in the kernels.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from beamtree.model.attention import Attention
from beamtree.native.network import AttentionGradients, Network

ROWS_AT_A_TIME = 64
"""Histories whose gradients are in memory together, each with sums of its own."""
UNIT = ("hidden.weight", "hidden.bias", "hidden_slope", "output.weight", "output.bias", "output_slope")
"""The parameters of the attention unit by name."""


def attention_weights(attention: Attention, history: Tensor, nodes: Tensor) -> Tensor:
    """Weights (rows, columns, positions) for history (rows, positions, size) and nodes (rows, columns, size)."""
    parameters = [attention.attention.get_parameter(name) for name in UNIT]
    network = Network.pack(attention.state_dict(), windows=attention.windows)
    weights: Tensor = _Weights.apply(network, history, nodes, *parameters)  # type: ignore[no-untyped-call]
    return weights.transpose(1, 2)


class _Weights(torch.autograd.Function):
    """Weights (rows, positions, columns) as the kernels compute them."""

    @staticmethod
    def forward(ctx: Any, network: Network, history: Tensor, nodes: Tensor, *parameters: Tensor) -> Tensor:
        history, nodes = history.contiguous(), nodes.contiguous()
        ctx.save_for_backward(history, nodes, *parameters)
        ctx.network = network
        return torch.from_numpy(network.attention_weights(history, nodes))

    @staticmethod
    def backward(ctx: Any, *d_weights: Tensor) -> tuple[Tensor | None, ...]:
        history, nodes, *parameters = ctx.saved_tensors
        given = d_weights[0].contiguous()
        found: list[AttentionGradients] = []
        for first in range(0, len(history), ROWS_AT_A_TIME):
            rows = slice(first, first + ROWS_AT_A_TIME)
            found.append(ctx.network.attention_gradients(history[rows], nodes[rows], d_weights=given[rows]))
        of_unit = [
            torch.from_numpy(np.sum([part.weights[f"attention.{name}"] for part in found], axis=0)).view_as(parameter)
            for name, parameter in zip(UNIT, parameters, strict=True)
        ]
        of_history = torch.from_numpy(np.concatenate([part.vectors for part in found]))
        of_nodes = torch.from_numpy(np.concatenate([part.nodes for part in found]))
        return None, of_history, of_nodes, *of_unit
