"""Sequence encoders: from the vectors of a history to one of what comes next, in the space of the items' own vectors.

One interface for all of them: the tower of the score reads histories through it, and so does the model of the next item
that it is learned with (`next_item.py`).
"""

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from beamtree.model.packing import Packing

STEEPEST_SLOPE, FLATTER = 0.3, 1 / 6
"""Before learning, an item loses so much attention of the first head with each place further back, and of each further
head that share of the one before."""

Dropout = Callable[[Tensor], Tensor]
"""Sets random numbers of a tensor to 0 and scales the others, or leaves it as it is."""


def keep(hidden: Tensor) -> Tensor:
    """No dropout."""
    return hidden


def drop_out(hidden: Tensor, *, share: float, generator: torch.Generator) -> Tensor:
    """Dropout of a share, rounded to one of 65,536 steps; the generator lives where hidden does.

    A quarter of a random integer decides each number, at a tenth of the cost of drawing a real number for it.
    """
    dropped = round(share * 2**16)
    drawn = torch.empty(-(-hidden.numel() // 4), dtype=torch.int64, device=hidden.device)
    drawn.random_(-(2**63), None, generator=generator)
    kept = drawn.view(torch.int16)[: hidden.numel()].view(hidden.shape) >= dropped - 2**15
    return hidden * kept.to(hidden.dtype).mul_(2**16 / (2**16 - dropped))


class SequenceEncoder(nn.Module):
    """A causal encoder of histories.

    width: of the input and output vectors; history_length: number of latest items that are read. Its weights are
    undefined until `initialise` or a stored state sets them.
    """

    width: int
    history_length: int

    @abstractmethod
    def packed(self, vectors: Tensor, *, packing: Packing, dropout: Dropout = keep) -> Tensor:
        """What each position of packed sequences expects next, (positions, width) from vectors (positions, width)."""

    @abstractmethod
    def expectation(self, vectors: Tensor, *, present: Tensor, dropout: Dropout = keep) -> Tensor:
        """What comes after each history, (rows, width) from vectors (rows, positions, width), oldest first.

        present: (rows, positions), False where there is no item, in front; whatever vector is there, it is never looked
        at. An empty history is one of its own.
        """

    def compact(self) -> None:
        """Once learning is over: numbers that the kernels keep in fewer bits are rounded, here nothing."""


@torch.no_grad()
def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Random tables and matrices of rows of about unit length, biases of 0; norms stay as they are.

    The first head of each block begins by looking at the latest items, the others ever further back.
    """
    for name, parameter in module.named_parameters():
        if name.endswith("recency"):
            heads, length = parameter.shape
            slopes = STEEPEST_SLOPE * FLATTER ** torch.arange(heads, dtype=parameter.dtype)
            parameter.copy_(-slopes[:, None] * torch.arange(length, dtype=parameter.dtype))
        elif parameter.dim() > 1:
            parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
        elif "norm" not in name:
            parameter.zero_()
