"""The layers of the attention network: the attention unit and the perceptron."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class AttentionUnit(nn.Module):
    """The weight of each history item for each node: [a; a*w; w] -> hidden -> 1, PReLU after both (Eq. 2)."""

    def __init__(self, size: int, *, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(3 * size, hidden)
        self.hidden_slope = nn.Parameter(torch.empty(1))
        self.output = nn.Linear(hidden, 1)
        self.output_slope = nn.Parameter(torch.empty(1))

    def forward(self, history: Tensor, nodes: Tensor) -> Tensor:
        """Weights (rows, columns, positions) for history (rows, positions, size) and nodes (rows, columns, size)."""
        items, targets = torch.broadcast_tensors(history.unsqueeze(1), nodes.unsqueeze(2))
        hidden = self.hidden(torch.cat([items, items * targets, targets], dim=-1))
        return self.weigh(hidden)

    def weigh(self, hidden: Tensor) -> Tensor:
        """From the hidden layer's sums (..., hidden) to weights (...)."""
        activated = functional.prelu(hidden, self.hidden_slope)
        return functional.prelu(self.output(activated).squeeze(-1), self.output_slope)


class Layers(nn.ModuleList):
    """The linear layers between the given widths, with one PReLU slope for each hidden one."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__(nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths))
        self.slopes = nn.Parameter(torch.empty(len(widths) - 2))

    def linear(self, index: int) -> nn.Linear:
        """The layer with this index."""
        layer = self[index]
        assert isinstance(layer, nn.Linear)
        return layer


NORMALISATIONS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda _: nn.Identity(),
    "layer": nn.LayerNorm,
    "batch": nn.BatchNorm1d,
}


def drop(hidden: Tensor, share: float, *, generator: torch.Generator) -> Tensor:
    """Dropout whose mask comes from a generator."""
    kept = torch.full(hidden.shape, 1.0 - share, dtype=hidden.dtype, device=hidden.device)
    return hidden * torch.bernoulli(kept, generator=generator) / (1.0 - share)
