"""The loss of a batch and its gradients."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from beamtree.errors import InputError
from beamtree.model.score import Score


@dataclass(frozen=True, eq=False)
class RowGradient:
    """Distinct rows (n,) of a table, in rising order, and their gradients (n, size)."""

    rows: Tensor
    values: Tensor

    @classmethod
    def summed(cls, rows: Tensor, values: Tensor) -> "RowGradient":
        """From rows (m,), repeated ones among them, and a gradient (m, size) for each; those of row -1 are dropped."""
        is_row = rows >= 0
        distinct, place = torch.unique(rows[is_row], return_inverse=True)
        totals = torch.zeros(len(distinct), values.shape[-1], dtype=values.dtype, device=values.device)
        return cls(distinct, totals.index_add_(0, place, values[is_row]))


@dataclass(frozen=True, eq=False)
class Gradients:
    """The loss of a batch and its gradients by name: of small weights whole, of tables for the touched rows alone.

    statistics: what the pass would leave in the running statistics of batch normalisation, by name.
    """

    loss: float
    dense: dict[str, Tensor]
    rows: dict[str, RowGradient] = field(default_factory=dict)
    statistics: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def sum(cls, gradients: Sequence["Gradients"], *, weights: Sequence[float]) -> "Gradients":
        """The weighted sum of the gradients of several batches, of the same score and device.

        weights: what each counts; a batch's share of all instances gives the gradients of all of them together.
        """
        if not gradients or len(gradients) != len(weights):
            raise InputError(f"Expected a weight for each of {len(gradients)} gradients, got {len(weights)}.")
        parts = list(zip(gradients, weights, strict=True))
        return cls(
            loss=sum(weight * part.loss for part, weight in parts),
            dense={name: _total([(part.dense[name], weight) for part, weight in parts]) for name in gradients[0].dense},
            rows={name: _merged(name, parts) for name in sorted({name for part in gradients for name in part.rows})},
            statistics={
                name: _mean([(part.statistics[name], weight) for part, weight in parts])
                for name in gradients[0].statistics
            },
        )


class TouchedRows:
    """Reads rows of a score's tables as autograd leaves: gradients have the size of the batch, not of the table."""

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


def _total(parts: Sequence[tuple[Tensor, float]]) -> Tensor:
    (first, share), *others = parts
    total = share * first
    for tensor, weight in others:
        total += weight * tensor  # rounded before it is added, as where workers add their own up
    return total


def _mean(parts: Sequence[tuple[Tensor, float]]) -> Tensor:
    """The weighted mean; of whole numbers, which count the batches, the first."""
    first = parts[0][0]
    return _total(parts) / sum(weight for _, weight in parts) if first.is_floating_point() else first


def _merged(name: str, parts: Sequence[tuple[Gradients, float]]) -> RowGradient:
    found = [(part.rows[name], weight) for part, weight in parts if name in part.rows]
    values = [weight * row_gradient.values for row_gradient, weight in found]
    if len(found) == 1:
        return RowGradient(found[0][0].rows, values[0])
    return RowGradient.summed(torch.cat([row_gradient.rows for row_gradient, _ in found]), torch.cat(values))
