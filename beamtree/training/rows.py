"""Row-wise (lazy) Adam: a step updates only the rows of a table that are in the batch.

Dense Adam updates every row at every step: momentum moves rows that are not in the batch, and decay shrinks them. Here
the cost of a step depends on the batch alone, however large the catalogue is.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import embedding


@dataclass
class RowAdam:
    """First and second moments (rows, size) of a table (rows, size)."""

    first_moment: Tensor
    second_moment: Tensor
    decoupled_decay: bool
    weight_decay: float
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    @classmethod
    def for_table(cls, table: Tensor, *, decoupled_decay: bool, weight_decay: float) -> Self:
        """Fresh moments for a table."""
        return cls(torch.zeros_like(table), torch.zeros_like(table), decoupled_decay, weight_decay)

    @torch.no_grad()
    def step(self, table: Tensor, *, rows: Tensor, gradients: Tensor, learning_rate: float, step: int) -> None:
        """Update the distinct `rows` (n,) of the table by their gradients (n, size); `step` counts from 1."""
        # Reading rows as an embedding is several times faster than by indexing.
        values, first, second = (embedding(rows, part) for part in (table, self.first_moment, self.second_moment))
        if self.decoupled_decay:
            values *= 1.0 - learning_rate * self.weight_decay
        else:
            gradients = gradients + self.weight_decay * values
        beta1, beta2 = self.betas
        first.lerp_(gradients, 1.0 - beta1)
        second.mul_(beta2).addcmul_(gradients, gradients, value=1.0 - beta2)
        spread = (second / (1.0 - beta2**step)).sqrt_().add_(self.epsilon)
        values.addcdiv_(first, spread, value=-learning_rate / (1.0 - beta1**step))
        self.first_moment[rows] = first
        self.second_moment[rows] = second
        table[rows] = values


class NativeRowAdam(RowAdam):
    """The same update as its base, computed by the kernels."""

    def step(self, table: Tensor, *, rows: Tensor, gradients: Tensor, learning_rate: float, step: int) -> None:
        """Update the distinct `rows` (n,) of the table by their gradients (n, size); `step` counts from 1."""
        from beamtree.native.training import RowGradients, adam_rows

        adam_rows(
            table,
            first_moment=self.first_moment,
            second_moment=self.second_moment,
            gradients=RowGradients(rows.numpy(), gradients.numpy()),
            learning_rate=learning_rate,
            step=step,
            weight_decay=self.weight_decay,
            decoupled_decay=self.decoupled_decay,
            betas=self.betas,
            epsilon=self.epsilon,
        )
