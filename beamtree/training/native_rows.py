"""Row-wise Adam in the kernels: one pass over a row and its moments."""

from torch import Tensor

from beamtree.native.training import RowGradients, adam_rows
from beamtree.training.rows import RowAdam


class NativeRowAdam(RowAdam):
    """The same update as its base, computed by the kernels."""

    def step(self, table: Tensor, *, rows: Tensor, gradients: Tensor, learning_rate: float, step: int) -> None:
        """Update the distinct `rows` (n,) of the table by their gradients (n, size); `step` counts from 1."""
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
