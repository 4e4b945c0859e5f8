"""Any torch module as a learner: what a call changes, and that a new sequence model takes a few lines."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.data.split import split_none
from beamtree.errors import DivergedError
from beamtree.training.gradients import Gradients
from beamtree.training.module_learner import ModuleLearner
from beamtree.training.schedule import epoch_schedule
from beamtree.training.trainer import Trainer
from beamtree.training.windows import TrainingWindows, WindowBatch
from tests.small import assert_same_bytes
from tests.training.runs import RING


class Recurrent(nn.Module):
    """A recurrent network over the items of a history: a baseline as small as it can be."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.items = nn.Embedding(8, 8)
            self.network = nn.GRU(8, 8, batch_first=True)

    def next_items(self, inputs: Tensor) -> Tensor:
        hidden, _ = self.network(self.items(inputs.clamp(min=0)))
        scores: Tensor = hidden @ self.items.weight.T
        return scores

    def loss(self, batch: WindowBatch) -> Tensor:
        inputs, targets = (torch.from_numpy(part).long() for part in batch)
        return functional.cross_entropy(self.next_items(inputs).flatten(0, 1), targets.flatten(), ignore_index=-1)


WINDOWS = TrainingWindows.cut(RING, split_none(RING), length=5)


def test_a_new_sequence_model_trains_through_the_same_loop() -> None:
    learner = ModuleLearner(Recurrent(), loss=Recurrent.loss, seed=3)
    schedule = epoch_schedule(
        len(WINDOWS), batch_size=4, epochs=150, learning_rate=0.05, patience=150, seed=3, remedy="Lower the rate."
    )

    def validate() -> dict[str, float]:
        best = learner.module.next_items(torch.tensor([[2, 3, 4]]))[0, -1].argmax()
        return {"f@20": float(best == 5)}

    progress = Trainer("recurrent", learner, WINDOWS, schedule, validate, plan=None, listen=lambda _: None).run()
    assert progress.best_score == 1.0
    assert progress.lowest_loss is not None
    assert progress.lowest_loss < 0.5 < np.log(8)


def mean_of_halves(learner: ModuleLearner[Recurrent], *, step: int) -> Gradients:
    """The mean of the gradients of two halves of the windows."""
    parts = np.split(np.arange(len(WINDOWS)), 2)
    found = [learner.gradients(WINDOWS.batch(part, epoch=0), step=step) for part in parts]
    return Gradients.sum(found, weights=[0.5, 0.5])


def test_gradients_change_nothing_and_can_be_averaged_before_they_are_applied() -> None:
    """All windows have five targets, so that the mean over a batch is the mean of its halves."""
    together, apart = (ModuleLearner(Recurrent(), loss=Recurrent.loss, seed=3) for _ in range(2))
    everything = WINDOWS.batch(np.arange(len(WINDOWS)), epoch=0)
    for step in range(3):
        before = {name: array.copy() for name, array in apart.model_arrays().items()}
        mean = mean_of_halves(apart, step=step)
        assert_same_bytes(apart.model_arrays(), before)
        whole = together.gradients(everything, step=step)
        assert mean.loss == pytest.approx(whole.loss, rel=1e-5)
        together.apply(whole, step=step, learning_rate=0.01)
        apart.apply(mean, step=step, learning_rate=0.01)
        for name, array in together.model_arrays().items():
            np.testing.assert_allclose(apart.model_arrays()[name], array, rtol=1e-3, atol=1e-5)


def test_a_gradient_that_is_not_finite_is_not_applied() -> None:
    learner = ModuleLearner(Recurrent(), loss=Recurrent.loss, seed=3)
    before = {name: array.copy() for name, array in learner.model_arrays().items()}
    gradients = learner.gradients(WINDOWS.batch(np.arange(4), epoch=0), step=0)
    gradients.dense["items.weight"][0, 0] = torch.nan
    with pytest.raises(DivergedError, match=r"not finite at step 1, so the step was not taken.*lower learning rate"):
        learner.apply(gradients, step=0, learning_rate=0.1)
    assert_same_bytes(learner.model_arrays(), before)
    assert learner.optimiser_arrays() == {}
