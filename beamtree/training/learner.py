"""One step of learning: negatives, scores, loss, gradients, update. Nothing in it touches a whole table."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from beamtree.config import TrainingSettings
from beamtree.model.preference import TABLES, PreferenceModel
from beamtree.model.scoring import history_table_rows, prepare_history, score_nodes
from beamtree.training.instances import Batch
from beamtree.training.losses import sampled_softmax_loss
from beamtree.training.negatives import NegativeSampler
from beamtree.training.randomness import numpy_generator, torch_generator
from beamtree.training.rows import RowAdam
from beamtree.tree.item_tree import ItemTree

Arrays = dict[str, npt.NDArray[Any]]


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
        self._network = network_optimiser(model, settings)
        self._tables = {
            name: RowAdam.for_table(
                table, decoupled_decay=settings.optimiser == "adamw", weight_decay=settings.weight_decay
            )
            for name, table in model.named_parameters()
            if name in TABLES
        }

    def step(self, batch: Batch, *, step: int, learning_rate: float) -> float:
        """Learn from a batch; the loss before the update."""
        seed, device = self._settings.seed, self.model.node_table.device
        candidates = self._negatives.draw(batch.targets, generator=numpy_generator(seed, "negatives", step))
        node_rows = torch.from_numpy(candidates.node_rows).to(device).flatten(0, 1)
        history_rows = torch.from_numpy(self._history_rows(batch.histories)).to(device)
        log_correction = torch.from_numpy(candidates.log_correction).to(device).flatten(0, 1)

        touched = TouchedRows(self.model, node_rows=node_rows, history_rows=history_rows)
        self.model.train()
        prepared = prepare_history(self.model, touched.history_vectors, present=history_rows >= 0)
        scores = score_nodes(
            self.model,
            prepared,
            touched.node_vectors,
            candidates=node_rows >= 0,
            dropout_generator=torch_generator(seed, "dropout", step, device=device),
        )
        loss = sampled_softmax_loss(scores, log_correction)
        self._network.zero_grad()
        loss.backward()
        self.model.eval()

        torch.nn.utils.clip_grad_norm_(self.model.network_parameters(), self._settings.clip_norm)
        for group in self._network.param_groups:
            group["lr"] = learning_rate
        self._network.step()
        for name, rows, gradients in touched.gradients():
            table = self.model.get_parameter(name)
            self._tables[name].step(table, rows=rows, gradients=gradients, learning_rate=learning_rate, step=step + 1)
        return float(loss.detach())

    def optimiser_arrays(self) -> Arrays:
        """The optimiser's state, for a checkpoint."""
        arrays: Arrays = {}
        for name, adam in self._tables.items():
            arrays[f"{name}.first_moment"] = adam.first_moment.cpu().numpy()
            arrays[f"{name}.second_moment"] = adam.second_moment.cpu().numpy()
        for index, state in self._network.state_dict()["state"].items():
            arrays |= {f"network.{index}.{key}": value.cpu().numpy() for key, value in state.items()}
        return arrays

    def restore_optimiser(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take up the state that `optimiser_arrays` gave."""
        for name, adam in self._tables.items():
            adam.first_moment.copy_(torch.from_numpy(arrays[f"{name}.first_moment"]))
            adam.second_moment.copy_(torch.from_numpy(arrays[f"{name}.second_moment"]))
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in arrays.items():
            if key.startswith("network."):
                _, index, moment = key.split(".")
                state.setdefault(int(index), {})[moment] = torch.from_numpy(np.array(value))
        self._network.load_state_dict({**self._network.state_dict(), "state": state})

    def _history_rows(self, histories: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Rows of the history table for each level and instance: (levels * instances, positions)."""
        levels = range(1, self._tree.height + 1)
        per_level = [history_table_rows(self.model, self._tree, items=histories, level=level) for level in levels]
        return np.concatenate(per_level)


class TouchedRows:
    """The distinct table rows of a batch as leaves of autograd: gradients of the batch's size, not the table's."""

    def __init__(self, model: PreferenceModel, *, node_rows: Tensor, history_rows: Tensor) -> None:
        """node_rows, history_rows: any shape, -1 for none (read as row 0 and masked by the caller)."""
        self._leaves: dict[str, tuple[Tensor, Tensor]] = {}
        nodes, histories = node_rows.clamp(min=0), history_rows.clamp(min=0)
        if model.item_table is None:
            both = torch.cat([nodes.flatten(), histories.flatten()])
            vectors = self._gather("node_table", model.node_table, both)
            self.node_vectors = vectors[: nodes.numel()].unflatten(0, nodes.shape)
            self.history_vectors = vectors[nodes.numel() :].unflatten(0, histories.shape)
        else:
            self.node_vectors = self._gather("node_table", model.node_table, nodes.flatten()).unflatten(0, nodes.shape)
            vectors = self._gather("item_table", model.item_table, histories.flatten())
            self.history_vectors = vectors.unflatten(0, histories.shape)

    def gradients(self) -> list[tuple[str, Tensor, Tensor]]:
        """(table name, distinct rows, their gradients), after the backward pass."""
        return [(name, rows, leaf.grad) for name, (rows, leaf) in self._leaves.items() if leaf.grad is not None]

    def _gather(self, name: str, table: Tensor, rows: Tensor) -> Tensor:
        distinct, place = torch.unique(rows, return_inverse=True)
        leaf = table.detach()[distinct].requires_grad_()
        self._leaves[name] = (distinct, leaf)
        return torch.nn.functional.embedding(place, leaf)


def network_optimiser(model: PreferenceModel, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Torch's Adam or AdamW over the small weights."""
    kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
    return kind(model.network_parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
