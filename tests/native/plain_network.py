"""The preference network written out in torch, straight from its formulas: what the kernels are compared with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

Normalisation = Literal["none", "layer"]


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a network: windows of the history, embedding width, attention units, perceptron layers."""

    windows: tuple[int, ...] = (3, 2)
    width: int = 5
    attention: int = 7
    mlp: tuple[int, ...] = (11, 6, 4)
    normalisation: Normalisation = "none"

    @property
    def history(self) -> int:
        return sum(self.windows)


PAPER = Shape(windows=(20, 20, 10, 10, 2, 2, 2, 1, 1, 1), width=24, attention=36, mlp=(128, 64, 24))


def random_weights(shape: Shape, *, seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Random weights named like the state of the network; slopes differ from each other."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        fan_in = size[-1] if len(size) > 1 else 4
        return torch.randn(*size, generator=generator, dtype=torch.float64).div(fan_in**0.5).to(dtype)

    width = shape.width
    weights = {
        "attention.hidden.weight": draw(shape.attention, 3 * width),
        "attention.hidden.bias": draw(shape.attention),
        "attention.hidden_slope": torch.tensor([0.3], dtype=dtype),
        "attention.output.weight": draw(1, shape.attention),
        "attention.output.bias": draw(1),
        "attention.output_slope": torch.tensor([0.2], dtype=dtype),
        "mlp.slopes": torch.tensor([0.25, 0.1, 0.4, 0.3, 0.2][: len(shape.mlp)], dtype=dtype),
    }
    sizes = [(len(shape.windows) + 1) * width, *shape.mlp, 1]
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        weights[f"mlp.{layer}.weight"] = draw(outputs, inputs)
        weights[f"mlp.{layer}.bias"] = draw(outputs)
    if shape.normalisation == "layer":
        for layer, units in enumerate(shape.mlp):
            weights[f"norm.{layer}.weight"] = 1 + draw(units)
            weights[f"norm.{layer}.bias"] = draw(units)
    return weights


def leaky(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x > 0, x, slope * x)


def attention_weights(weights: dict[str, Tensor], vectors: Tensor, nodes: Tensor) -> Tensor:
    """vectors: (..., K, d), nodes: (..., n, d) -> (..., K, n)"""
    a = vectors.unsqueeze(-2)
    w = nodes.unsqueeze(-3)
    a, w = torch.broadcast_tensors(a, w)
    hidden = torch.cat([a, a * w, w], dim=-1) @ weights["attention.hidden.weight"].T + weights["attention.hidden.bias"]
    hidden = leaky(hidden, weights["attention.hidden_slope"])
    out = (hidden * weights["attention.output.weight"][0]).sum(-1) + weights["attention.output.bias"]
    return leaky(out, weights["attention.output_slope"])


def scores(
    weights: dict[str, Tensor],
    shape: Shape,
    vectors: Tensor,
    present: Tensor,
    nodes: Tensor,
    *,
    layer_offsets: Tensor | None = None,
    dropout_factors: Tensor | None = None,
) -> Tensor:
    """vectors: (rows, K, d), present: (rows, K) bool, nodes: (rows, n, d) -> (rows, n)

    layer_offsets: (rows, units of the first layer), added to it.
    """
    attention = attention_weights(weights, vectors, nodes) * present.unsqueeze(-1)
    weighted = attention.unsqueeze(-1) * vectors.unsqueeze(-2)
    parts: Sequence[Tensor] = weighted.split(list(shape.windows), dim=1)
    y = torch.cat([part.sum(dim=1) for part in parts] + [nodes], dim=-1)
    last = len(shape.mlp)
    for layer in range(last):
        y = y @ weights[f"mlp.{layer}.weight"].T + weights[f"mlp.{layer}.bias"]
        if layer == 0 and layer_offsets is not None:
            y = y + layer_offsets.unsqueeze(1)
        if shape.normalisation == "layer":
            y = layer_norm(y, y.shape[-1:], weights[f"norm.{layer}.weight"], weights[f"norm.{layer}.bias"])
        if layer == 0 and dropout_factors is not None:
            y = y * dropout_factors
        y = leaky(y, weights["mlp.slopes"][layer])
    return (y @ weights[f"mlp.{last}.weight"].T + weights[f"mlp.{last}.bias"]).squeeze(-1)


def candidate_loss(
    weights: dict[str, Tensor],
    shape: Shape,
    *,
    node_table: Tensor,
    history_table: Tensor,
    node_rows: np.ndarray,
    log_correction: np.ndarray,
    history_rows: np.ndarray,
    row_weights: np.ndarray,
    layer_offsets: Tensor | None = None,
    dropout_factors: Tensor | None = None,
) -> Tensor:
    """Mean over rows of weight * (logsumexp(score - correction) - score of column 0)."""
    rows = torch.from_numpy(node_rows)
    history = torch.from_numpy(history_rows)
    logits = scores(
        weights,
        shape,
        history_table[history.clamp(min=0)],
        history >= 0,
        node_table[rows.clamp(min=0)],
        layer_offsets=layer_offsets,
        dropout_factors=dropout_factors,
    )
    corrected = (logits - torch.from_numpy(log_correction)).masked_fill(rows < 0, -torch.inf)
    losses = corrected.logsumexp(dim=1) - corrected[:, 0]
    counted = (rows >= 0).sum(dim=1) > 1
    return (torch.from_numpy(row_weights) * torch.where(counted, losses, 0.0)).mean()
