"""One step of learning with the compiled kernels: drawing, scoring, loss and gradients in a single call on the CPU."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from beamtree.config import ModelSettings, TrainingSettings
from beamtree.model.preference import TABLES, PreferenceModel
from beamtree.native.network import Network
from beamtree.native.search import Model
from beamtree.native.training import Dropout, Gradients, Negatives, RowGradients, adam_rows, learn_batch
from beamtree.training.instances import Batch
from beamtree.training.optimiser import Arrays, ModelOptimiser, RowGradient
from beamtree.training.randomness import seed_for
from beamtree.training.rows import RowAdam
from beamtree.tree.item_tree import ItemTree


class NativeLearner:
    """Learning in the kernels, which know normalisations local to a row; torch keeps the Adam of the small weights."""

    def __init__(
        self,
        model: PreferenceModel,
        tree: ItemTree,
        *,
        negatives: Negatives,
        settings: TrainingSettings,
        model_settings: ModelSettings,
    ) -> None:
        self.model = model
        self._negatives = negatives
        self._settings = settings
        self._model_settings = model_settings
        self._optimiser = ModelOptimiser(model, settings=settings, row_adam=NativeRowAdam)
        self._network_parameters = {name: p for name, p in model.named_parameters() if name not in TABLES}
        self._kernel_model = Model(self._pack(), tree, node_table=model.node_table, item_table=model.item_table)
        model.eval()

    def step(self, batch: Batch, *, step: int, learning_rate: float) -> float:
        """Learn from a batch; the loss before the update."""
        seed = self._settings.seed
        self._kernel_model = replace(self._kernel_model, network=self._pack())
        gradients = learn_batch(
            self._kernel_model,
            histories=batch.histories,
            targets=batch.targets,
            negatives=self._negatives,
            seed=seed_for(seed, "negatives", step),
            weights=batch.level_weights,
            dropout=Dropout(self._model_settings.dropout, seed_for(seed, "dropout", step)),
        )
        for name, parameter in self._network_parameters.items():
            parameter.grad = torch.from_numpy(gradients.weights[name]).view_as(parameter)
        with _one_torch_thread():
            self._optimiser.step(_row_gradients(gradients), learning_rate=learning_rate, step=step)
        return gradients.loss

    def optimiser_arrays(self) -> Arrays:
        """The optimiser's state, for a checkpoint."""
        return self._optimiser.arrays()

    def restore_optimiser(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take up the state that `optimiser_arrays` gave."""
        self._optimiser.restore(arrays)

    def _pack(self) -> Network:
        settings = self._model_settings
        return Network.pack(self._network_parameters, windows=settings.windows, normalisation=settings.normalisation)


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


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """What is left to torch is small: waking its threads beside those of the kernels would cost more than it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _row_gradients(gradients: Gradients) -> Iterator[RowGradient]:
    for name, touched in (("node_table", gradients.nodes), ("item_table", gradients.items)):
        if len(touched.rows):
            yield name, torch.from_numpy(touched.rows), torch.from_numpy(touched.values)
