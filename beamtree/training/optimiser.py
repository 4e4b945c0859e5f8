"""The optimiser of a score: torch's Adam for the small weights, row-wise Adam for the tables, one state to save."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from beamtree.config import TrainingSettings
from beamtree.errors import DivergedError, InputError
from beamtree.model.score import Score
from beamtree.training.gradients import Gradients
from beamtree.training.rows import RowAdam
from beamtree.types import AnyArray


class ScoreOptimiser:
    """Updates a score from the gradients of its small weights and of the table rows that a batch touched."""

    def __init__(self, score: Score, *, settings: TrainingSettings, row_adam: type[RowAdam] = RowAdam) -> None:
        self._small_weights = score.small_weights()
        self._tables = score.tables()
        if not self._small_weights and not self._tables:
            raise InputError(
                f"Expected a score with something to learn, but its parts ({', '.join(score.parts)}) have no weights. "
                "Use it as it is."
            )
        self._clip_norm = settings.schedule.clip_norm
        is_adamw = settings.schedule.optimiser == "adamw"
        kind = torch.optim.AdamW if is_adamw else torch.optim.Adam
        self._adam = None
        if self._small_weights:
            self._adam = kind(list(self._small_weights.values()), weight_decay=settings.schedule.weight_decay)
        self._row_adam = {
            name: row_adam.for_table(table, decoupled_decay=is_adamw, weight_decay=settings.schedule.weight_decay)
            for name, table in self._tables.items()
        }

    def step(self, gradients: Gradients, *, learning_rate: float, step: int) -> None:
        """One update; `step` counts from 0. DivergedError, and no update, where a gradient is not finite."""
        for name, weight in self._small_weights.items():
            weight.grad = gradients.dense[name].clone()
        norm = torch.nn.utils.clip_grad_norm_(self._small_weights.values(), self._clip_norm)
        if not (norm.isfinite() and all(row.values.sum().isfinite() for row in gradients.rows.values())):
            raise DivergedError(
                f"The gradients are not finite at step {step}, so the step was not taken. Start again (--restart) with "
                "a lower training.learning_rate or training.schedule.clip_norm."
            )
        if self._adam is not None:
            for group in self._adam.param_groups:
                group["lr"] = learning_rate
            self._adam.step()
            self._adam.zero_grad()
        for name, row_gradient in gradients.rows.items():
            self._row_adam[name].step(
                self._tables[name],
                rows=row_gradient.rows,
                gradients=row_gradient.values,
                learning_rate=learning_rate,
                step=step + 1,
            )

    def arrays(self) -> dict[str, AnyArray]:
        """The whole state, for a checkpoint: the moments of each weight by its name."""
        arrays: dict[str, AnyArray] = {}
        for name, adam in self._row_adam.items():
            arrays[f"{name}.first_moment"] = adam.first_moment.cpu().numpy()
            arrays[f"{name}.second_moment"] = adam.second_moment.cpu().numpy()
        if self._adam is not None:
            for name, weight in self._small_weights.items():
                arrays |= {f"{name}.{key}": value.cpu().numpy() for key, value in self._adam.state[weight].items()}
        return arrays

    def restore(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take up the state that `arrays` gave."""
        for name, adam in self._row_adam.items():
            adam.first_moment.copy_(torch.from_numpy(arrays[f"{name}.first_moment"]))
            adam.second_moment.copy_(torch.from_numpy(arrays[f"{name}.second_moment"]))
        if self._adam is None:
            return
        state: dict[int, dict[str, Tensor]] = {}
        for index, name in enumerate(self._small_weights):
            prefix = f"{name}."
            own = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
            if own:
                state[index] = {key: torch.from_numpy(np.array(value)) for key, value in own.items()}
        self._adam.load_state_dict({**self._adam.state_dict(), "state": state})
