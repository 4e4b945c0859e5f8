"""Adam for a whole model: torch's own for the small weights, by rows for the tables, with one state to save."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from beamtree.config import TrainingSettings
from beamtree.errors import DivergedError
from beamtree.model.preference import TABLES, PreferenceModel
from beamtree.training.rows import RowAdam

Arrays = dict[str, npt.NDArray[Any]]
RowGradient = tuple[str, Tensor, Tensor]
"""Table name, distinct rows (n,), their gradients (n, size)."""


class ModelOptimiser:
    """Updates a model from the gradients in its small weights and those of the table rows that a batch touched."""

    def __init__(
        self, model: PreferenceModel, *, settings: TrainingSettings, row_adam: type[RowAdam] = RowAdam
    ) -> None:
        self._model = model
        self._clip_norm = settings.clip_norm
        is_adamw = settings.optimiser == "adamw"
        kind = torch.optim.AdamW if is_adamw else torch.optim.Adam
        self._network = kind(model.network_parameters(), weight_decay=settings.weight_decay)
        self._tables = {
            name: row_adam.for_table(table, decoupled_decay=is_adamw, weight_decay=settings.weight_decay)
            for name, table in model.named_parameters()
            if name in TABLES
        }

    def zero_grad(self) -> None:
        """Forget the gradients of the small weights."""
        self._network.zero_grad()

    def step(self, row_gradients: Iterable[RowGradient], *, learning_rate: float, step: int) -> None:
        """One update; `step` counts from 0. DivergedError, and no update, where a gradient is not finite."""
        touched = list(row_gradients)
        norm = torch.nn.utils.clip_grad_norm_(self._model.network_parameters(), self._clip_norm)
        if not (norm.isfinite() and all(gradients.sum().isfinite() for _, _, gradients in touched)):
            raise DivergedError(
                f"The gradients are not finite at step {step}, so the step was not taken. Start again (--restart) with "
                "a lower training.learning_rate or training.clip_norm."
            )
        for group in self._network.param_groups:
            group["lr"] = learning_rate
        self._network.step()
        for name, rows, gradients in touched:
            table = self._model.get_parameter(name)
            self._tables[name].step(table, rows=rows, gradients=gradients, learning_rate=learning_rate, step=step + 1)

    def arrays(self) -> Arrays:
        """The whole state, for a checkpoint."""
        arrays: Arrays = {}
        for name, adam in self._tables.items():
            arrays[f"{name}.first_moment"] = adam.first_moment.cpu().numpy()
            arrays[f"{name}.second_moment"] = adam.second_moment.cpu().numpy()
        for index, state in self._network.state_dict()["state"].items():
            arrays |= {f"network.{index}.{key}": value.cpu().numpy() for key, value in state.items()}
        return arrays

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take up the state that `arrays` gave."""
        for name, adam in self._tables.items():
            adam.first_moment.copy_(torch.from_numpy(arrays[f"{name}.first_moment"]))
            adam.second_moment.copy_(torch.from_numpy(arrays[f"{name}.second_moment"]))
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in arrays.items():
            if key.startswith("network."):
                _, index, moment = key.split(".")
                state.setdefault(int(index), {})[moment] = torch.from_numpy(np.array(value))
        self._network.load_state_dict({**self._network.state_dict(), "state": state})
