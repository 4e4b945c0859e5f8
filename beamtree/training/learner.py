"""Training steps as two calls, gradients and update, so that gradients can be summed over workers in between."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from beamtree.config import TrainingSettings
from beamtree.errors import InputError
from beamtree.model.score import Score
from beamtree.training.gradients import Gradients, TouchedRows
from beamtree.training.history_dropout import without_some_histories
from beamtree.training.instances import Batch, one_target_each
from beamtree.training.losses import sampled_softmax_loss
from beamtree.training.negatives import Draws
from beamtree.training.optimiser import ScoreOptimiser
from beamtree.training.randomness import numpy_generator, torch_generator
from beamtree.types import AnyArray


class Learner(Protocol):
    """A model in training, with its optimiser."""

    def gradients(self, batch: Any, *, step: int) -> Gradients:
        """Loss and gradients of a batch; changes nothing. `step` counts from 0 and decides all randomness."""
        ...

    def apply(self, gradients: Gradients, *, step: int, learning_rate: float) -> None:
        """Update the weights; DivergedError, and no update, where a gradient is not finite."""
        ...

    def model_arrays(self) -> dict[str, AnyArray]:
        """All weights by name, sharing memory with the model where it lives on the CPU."""
        ...

    def load_model_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the weights that `model_arrays` gave into the model."""
        ...

    def optimiser_arrays(self) -> dict[str, AnyArray]:
        """The optimiser's state, for a checkpoint."""
        ...

    def restore_optimiser(self, arrays: Mapping[str, AnyArray]) -> None:
        """Restore the state that `optimiser_arrays` gave."""
        ...


class TorchLearner:
    """Trains any score in torch, on the device of the score."""

    def __init__(self, score: Score, *, draws: Draws, settings: TrainingSettings) -> None:
        self.score = score
        self._draws = draws
        self._settings = settings
        self._optimiser = ScoreOptimiser(score, settings=settings)

    def gradients(self, batch: Batch, *, step: int) -> Gradients:
        """The loss, the mean over instances and learned levels, and its gradients. No pass touches a whole table.

        InputError where a part reads a table without `read`: its rows would not be updated.
        """
        seed, device, learned = self._settings.seed, self.score.device, self.score.learned_levels()
        told = without_some_histories(batch, self.score, generator=numpy_generator(seed, "no history", step))
        single = one_target_each(told, height=self.score.tree.height)
        candidates = self._draws.draw(single, generator=numpy_generator(seed, "negatives", step))
        nodes = torch.from_numpy(candidates.node_rows).to(device)
        log_correction = torch.from_numpy(candidates.log_correction).to(device)
        weights = None
        if single.level_weights is not None:
            weights = torch.from_numpy(single.level_weights[:, 0].T.copy()).to(device)
        touched = TouchedRows(self.score)
        small_weights = self.score.small_weights()
        statistics = _running_statistics(self.score)
        before = {name: value.clone() for name, value in statistics.items()}
        self.score.train()
        self.score.zero_grad()
        score_nodes = self.score.prepare(
            single.requests, read=touched, dropout=torch_generator(seed, "dropout", step, device=device)
        )

        def learn_levels(levels: list[int]) -> float:
            """The share of some levels in the loss; its gradients are left in the leaves of autograd."""
            places = [level - 1 for level in levels]
            scores = score_nodes(levels, nodes[places]).flatten(0, 1)
            labels = None if weights is None else weights[places].flatten()
            mean = sampled_softmax_loss(scores, log_correction[places].flatten(0, 1), weights=labels)
            partial = len(levels) / len(learned) * mean
            if partial.requires_grad:
                partial.backward(retain_graph=True)  # the levels share what was prepared for all of them
            return float(partial.detach())

        loss = sum(learn_levels(levels) for levels in self._at_a_time(learned))
        self.score.eval()
        _refuse_direct_reads(self.score)
        dense = {name: _taken_gradient(weight) for name, weight in small_weights.items()}
        after = {name: value.clone() for name, value in statistics.items()}
        for name, value in before.items():
            statistics[name].copy_(value)
        return Gradients(loss, dense, touched.gradients(), after)

    def apply(self, gradients: Gradients, *, step: int, learning_rate: float) -> None:
        """Update the weights; DivergedError, and no update, where a gradient is not finite."""
        self._optimiser.step(gradients, learning_rate=learning_rate, step=step)
        statistics = _running_statistics(self.score)
        for name, value in gradients.statistics.items():
            statistics[name].copy_(value)

    def model_arrays(self) -> dict[str, AnyArray]:
        """All weights by name, sharing memory with the score where it lives on the CPU."""
        return self.score.arrays()

    def load_model_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the weights that `model_arrays` gave into the score."""
        self.score.load_arrays(arrays)

    def optimiser_arrays(self) -> dict[str, AnyArray]:
        """The optimiser's state, for a checkpoint."""
        return self._optimiser.arrays()

    def restore_optimiser(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take up the state that `optimiser_arrays` gave."""
        self._optimiser.restore(arrays)

    def _at_a_time(self, levels: list[int]) -> Iterator[list[int]]:
        """One level at a time on a CPU, so that intermediates fit in its cache; all together on an accelerator or with
        batch statistics."""
        is_together = self.score.device.type != "cpu" or bool(_running_statistics(self.score))
        step = len(levels) if is_together else 1
        return (levels[first : first + step] for first in range(0, len(levels), step))


def _running_statistics(score: Score) -> dict[str, Tensor]:
    """The buffers of batch normalisation, which a pass in training moves, by name."""
    return {
        f"{part_name}/{prefix}.{name}": buffer
        for part_name, part in score.parts.items()
        for prefix, module in part.named_modules()
        if isinstance(module, _BatchNorm)
        for name, buffer in module.named_buffers()
    }


def _refuse_direct_reads(score: Score) -> None:
    read_directly = [name for name, table in score.tables().items() if table.grad is not None]
    if read_directly:
        score.zero_grad()
        raise InputError(
            f"Expected the rows of {' and '.join(read_directly)} through read('name', rows), got a gradient of the "
            "whole table. Read it so everywhere, or leave it out of the part's tables to update it whole."
        )


def _taken_gradient(weight: Tensor) -> Tensor:
    """The gradient that the backward passes left, 0 where the loss does not depend on the weight; taken away."""
    gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
    weight.grad = None
    return gradient
