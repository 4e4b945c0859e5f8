"""The proposal distribution of the sampled softmax, and the importance weight of each negative."""

import torch
from torch import Tensor

from beamtree.types import Float64Array, Int64Array


class Proposal:
    """The probability of each item to be drawn; the importance weight is its inverse.

    In double precision, because the shares of millions of items are added up.
    """

    def __init__(self, shares: Float64Array) -> None:
        """shares: (items,), adding up to 1."""
        self._shares = torch.from_numpy(shares)
        self._up_to = self._shares.cumsum(dim=0)

    @classmethod
    def half_by_frequency(cls, counts: Int64Array) -> "Proposal":
        """Half of the draws follow the counts (items,), half of them go evenly to all items."""
        return cls(0.5 * counts / max(1, counts.sum()) + 0.5 / len(counts))

    def draw(self, count: int, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The distinct items of `count` draws, and their importance weights; both on the host."""
        points = torch.rand(count, dtype=torch.float64, generator=generator, device=generator.device).cpu()
        points *= self._up_to[-1]
        places = torch.searchsorted(self._up_to, points, right=True).clamp(max=len(self._shares) - 1)
        drawn, times = places.unique(return_counts=True)
        return drawn, times / (count * self._shares[drawn])
