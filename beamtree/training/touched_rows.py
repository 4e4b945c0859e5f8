"""The table rows of a batch as autograd leaves: gradients have the size of the batch, not of the table."""

import torch
from torch import Tensor

from beamtree.model.score import Score
from beamtree.training.gradients import RowGradient


class TouchedRows:
    """Reads rows of a score's tables, and gives their gradients after the backward passes."""

    def __init__(self, score: Score) -> None:
        self._tables = score.tables()
        self._reads: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def __call__(self, table: str, rows: Tensor) -> Tensor:
        """Vectors (..., size) of rows (...); -1, for none, reads row 0 and must be masked by the caller."""
        leaf = self._tables[table].detach()[rows.clamp(min=0)].requires_grad_()
        self._reads.setdefault(table, []).append((rows.flatten(), leaf))
        return leaf

    def gradients(self) -> dict[str, RowGradient]:
        """By table: the rows that the loss depends on, and their summed gradients."""
        found = {}
        for name, reads in self._reads.items():
            used = [(rows, leaf.grad.flatten(0, -2)) for rows, leaf in reads if leaf.grad is not None]
            if used:
                found[name] = RowGradient.summed(
                    torch.cat([rows for rows, _ in used]), torch.cat([gradient for _, gradient in used])
                )
        return found
