"""One step of learning: negatives, scores, loss, gradients, update. Nothing in it touches a whole table."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from beamtree.config import TrainingSettings
from beamtree.model.preference import PreferenceModel
from beamtree.model.scoring import first_layer_in_blocks, history_table_rows
from beamtree.training.instances import Batch, one_target_each
from beamtree.training.losses import sampled_softmax_loss
from beamtree.training.negatives import NegativeSampler
from beamtree.training.optimiser import Arrays, ModelOptimiser, RowGradient
from beamtree.training.randomness import numpy_generator, torch_generator
from beamtree.tree.item_tree import ItemTree


class Learner(Protocol):
    """A model that is being learned, with its optimiser."""

    model: PreferenceModel

    def step(self, batch: Batch, *, step: int, learning_rate: float) -> float:
        """Learn from a batch; the loss before the update. `step` counts from 0 and decides all randomness."""
        ...

    def optimiser_arrays(self) -> Arrays:
        """The optimiser's state, for a checkpoint."""
        ...

    def restore_optimiser(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take up the state that `optimiser_arrays` gave."""
        ...


class TorchLearner:
    """Learning in torch, on the device that the model lives on."""

    def __init__(
        self, model: PreferenceModel, tree: ItemTree, *, negatives: NegativeSampler, settings: TrainingSettings
    ) -> None:
        self.model = model
        self._tree = tree
        self._negatives = negatives
        self._settings = settings
        self._optimiser = ModelOptimiser(model, settings=settings)

    def step(self, batch: Batch, *, step: int, learning_rate: float) -> float:
        """Learn from a batch; the loss before the update."""
        self._optimiser.zero_grad()
        loss, touched = self._accumulate_gradients(batch, step=step)
        self._optimiser.step(touched.gradients(), learning_rate=learning_rate, step=step)
        return loss

    def optimiser_arrays(self) -> Arrays:
        """The optimiser's state, for a checkpoint."""
        return self._optimiser.arrays()

    def restore_optimiser(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take up the state that `optimiser_arrays` gave."""
        self._optimiser.restore(arrays)

    def _accumulate_gradients(self, batch: Batch, *, step: int) -> tuple[float, "TouchedRows"]:
        """The loss of a batch, the mean over its instances and levels, with its gradients left in the leaves."""
        seed, device = self._settings.seed, self.model.node_table.device
        batch = one_target_each(batch, height=self._tree.height)
        candidates = self._negatives.draw(batch, generator=numpy_generator(seed, "negatives", step))
        node_rows = torch.from_numpy(candidates.node_rows).to(device)
        log_correction = torch.from_numpy(candidates.log_correction).to(device)
        history_rows = torch.from_numpy(self._history_rows(batch.histories)).to(device)
        weights = None if batch.level_weights is None else torch.from_numpy(batch.level_weights.T.copy()).to(device)
        dropout_generator = torch_generator(seed, "dropout", step, device=device)
        touched = TouchedRows(self.model)
        num_levels = len(node_rows)
        loss = 0.0
        self.model.train()
        for levels in self._levels_at_a_time(num_levels):
            nodes, histories = node_rows[levels].flatten(0, 1), history_rows[levels].flatten(0, 1)
            first_layer = first_layer_in_blocks(
                self.model, touched.histories(histories), touched.nodes(nodes), present=histories >= 0
            )
            scores = self.model.score_first_layer(
                first_layer, candidates=nodes >= 0, dropout_generator=dropout_generator
            )
            share = (levels.stop - levels.start) / num_levels
            labels = None if weights is None else weights[levels].flatten()
            partial = share * sampled_softmax_loss(scores, log_correction[levels].flatten(0, 1), weights=labels)
            partial.backward()
            loss += float(partial.detach())
        self.model.eval()
        return loss, touched

    def _levels_at_a_time(self, num_levels: int) -> list[slice]:
        """Level by level on a CPU, whose cache a level's intermediates fit; all together where batch statistics or an
        accelerator want them so."""
        if self.model.node_table.device.type != "cpu" or isinstance(self.model.norm[0], torch.nn.BatchNorm1d):
            return [slice(0, num_levels)]
        return [slice(level, level + 1) for level in range(num_levels)]

    def _history_rows(self, histories: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Rows of the history table for each level and instance: (levels, instances, positions)."""
        levels = range(1, self._tree.height + 1)
        return np.stack([history_table_rows(self.model, self._tree, items=histories, level=level) for level in levels])


class TouchedRows:
    """The table rows of a batch as leaves of autograd: gradients of the batch's size, not the table's."""

    def __init__(self, model: PreferenceModel) -> None:
        self._model = model
        self._parts: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def nodes(self, rows: Tensor) -> Tensor:
        """Vectors (..., size) of node rows (...); -1, for none, reads row 0 and must be masked by the caller."""
        return self._gather("node_table", rows)

    def histories(self, rows: Tensor) -> Tensor:
        """Vectors (..., size) of history rows (...), likewise."""
        return self._gather("node_table" if self._model.item_table is None else "item_table", rows)

    def gradients(self) -> Iterator[RowGradient]:
        """(table name, distinct rows in rising order, their summed gradients), after the backward passes."""
        for name, parts in self._parts.items():
            rows = torch.cat([part_rows for part_rows, _ in parts])
            gradients = torch.cat([leaf.grad.flatten(0, -2) for _, leaf in parts if leaf.grad is not None])
            is_row = rows >= 0
            distinct, place = torch.unique(rows[is_row], return_inverse=True)
            summed = torch.zeros(len(distinct), gradients.shape[-1], dtype=gradients.dtype, device=gradients.device)
            yield name, distinct, summed.index_add_(0, place, gradients[is_row])

    def _gather(self, name: str, rows: Tensor) -> Tensor:
        leaf = self._model.get_parameter(name).detach()[rows.clamp(min=0)].requires_grad_()
        self._parts.setdefault(name, []).append((rows.flatten(), leaf))
        return leaf
