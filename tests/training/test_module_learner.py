"""Any torch module as a learner: what a call changes, and that a new sequence model takes a few lines."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.data.split import split_none
from beamtree.errors import DivergedError, InputError
from beamtree.training.gradients import Gradients
from beamtree.training.module_learner import BatchPart, ModuleLearner
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

    def loss(self, batch: WindowBatch, _generator: torch.Generator) -> Tensor:
        """Of windows of one length."""
        inputs, targets = (torch.from_numpy(part).long() for part in (batch.inputs, batch.targets))
        scores = self.next_items(inputs.view(len(batch.lengths), -1))
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=-1)


WINDOWS = TrainingWindows.cut(RING, split_none(RING), length=5)


def test_a_new_sequence_model_trains_through_the_same_loop() -> None:
    learner = ModuleLearner(Recurrent(), loss=Recurrent.loss, seed=3)
    schedule = epoch_schedule(
        len(WINDOWS),
        batch_size=4,
        epochs=150,
        learning_rate=0.05,
        decay="constant",
        validations=150,
        patience=150,
        seed=3,
        remedy="Lower the rate.",
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


class Table(nn.Module):
    """Five rows, of which a batch reads some: its loss is the sum of what it reads, times a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.arange(10.0).view(5, 2))
        self.scale = nn.Parameter(torch.ones(()))

    def loss(self, batch: list[int], _generator: torch.Generator) -> Tensor:
        return self.scale * functional.embedding(torch.tensor(batch), self.rows, sparse=True).sum()

    def dense_loss(self, batch: list[int], _generator: torch.Generator) -> Tensor:
        return self.scale * self.rows[batch].sum()


def test_of_a_table_the_rows_of_the_batch_are_updated_alone() -> None:
    """Untouched rows stand still; the others go as with AdamW, which has seen the same gradients from the start."""
    plain, by_rows = (
        ModuleLearner(Table(), loss=Table.dense_loss, seed=3),
        ModuleLearner(Table(), loss=Table.loss, seed=3, tables=["rows"]),
    )
    for step in range(3):
        for learner in (plain, by_rows):
            learner.apply(learner.gradients([1, 3, 3], step=step), step=step, learning_rate=0.1)
    expected, found = plain.module.rows.detach(), by_rows.module.rows.detach()
    torch.testing.assert_close(found[[1, 3]], expected[[1, 3]])
    assert found[[0, 2, 4]].tolist() == [[0.0, 1.0], [4.0, 5.0], [8.0, 9.0]]
    torch.testing.assert_close(by_rows.module.scale, plain.module.scale)
    again = ModuleLearner(Table(), loss=Table.loss, seed=3, tables=["rows"])
    again.load_model_arrays(by_rows.model_arrays())
    again.restore_optimiser(by_rows.optimiser_arrays())
    for learner in (again, by_rows):
        learner.apply(learner.gradients([0, 1], step=3), step=3, learning_rate=0.1)
    assert_same_bytes(again.model_arrays(), by_rows.model_arrays())
    assert_same_bytes(again.optimiser_arrays(), by_rows.optimiser_arrays())


def test_a_table_that_is_read_as_a_whole_is_refused() -> None:
    learner = ModuleLearner(Table(), loss=Table.dense_loss, seed=3, tables=["rows"])
    with pytest.raises(InputError, match=r"reads the tables rows with embedding\(..., sparse=True\) alone"):
        learner.gradients([1], step=0)


def halves(batch: WindowBatch) -> list[BatchPart]:
    return [BatchPart(part, len(part.inputs) / len(batch.inputs)) for part in batch.divided(2)]


def test_parts_that_are_learned_from_side_by_side_make_up_the_batch() -> None:
    together = ModuleLearner(Recurrent(), loss=Recurrent.loss, seed=3)
    divided = ModuleLearner(Recurrent(), loss=Recurrent.loss, seed=3, divide=halves)
    batch = WINDOWS.batch(np.arange(len(WINDOWS)), epoch=0)
    whole, summed, again = (learner.gradients(batch, step=0) for learner in (together, divided, divided))
    assert summed.loss == pytest.approx(whole.loss)
    for name, gradient in whole.dense.items():
        torch.testing.assert_close(summed.dense[name], gradient)
        assert torch.equal(summed.dense[name], again.dense[name])


def test_each_part_draws_for_itself_and_the_same_at_the_same_step() -> None:
    drawn: dict[int, list[float]] = {}

    def loss(module: Table, batch: tuple[int, int], generator: torch.Generator) -> Tensor:
        step, part = batch
        drawn.setdefault(step, [0.0, 0.0])[part] = float(torch.rand((), generator=generator))
        return module.scale.square()

    learner = ModuleLearner(
        Table(), loss=loss, seed=3, divide=lambda step: [BatchPart((step, part), 0.5) for part in range(2)]
    )
    for step in (0, 1):
        learner.gradients(step, step=step)
    first = dict(drawn)
    learner.gradients(0, step=0)
    assert drawn == first
    assert len({number for numbers in drawn.values() for number in numbers}) == 4
