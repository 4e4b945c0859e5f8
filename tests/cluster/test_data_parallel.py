"""Any number of workers takes the steps that one takes on the same global batches."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from beamtree import native
from beamtree.cluster.data_parallel import DataParallelLearner, DivisibleInstances, WorkerInstances
from beamtree.cluster.exchange import Exchange, Notes
from beamtree.data.split import split_none
from beamtree.errors import InputError
from beamtree.model.next_item import NextItemModel
from beamtree.training.estimate import sequence_learner
from beamtree.training.gradients import Gradients, RowGradient
from beamtree.training.learner import Learner
from beamtree.training.schedule import Schedule, epoch_schedule
from beamtree.training.trainer import Progress, Trainer
from beamtree.training.windows import TrainingWindows
from tests.cluster.workers import Workers, waiting_workers
from tests.small import Arrays, assert_same_bytes, encoder_settings, model_settings, sequences_of
from tests.training.linear import LinearLearner
from tests.training.runs import ring_instances, torch_learner, training_settings

PARTS = 2


class Setting(NamedTuple):
    """A learner at its start and what it learns from."""

    learner: Learner
    instances: DivisibleInstances


class Learned(NamedTuple):
    """What a worker has in the end."""

    weights: Arrays
    optimiser: Arrays
    progress: Progress
    bytes_sent: int


def encoder() -> Setting:
    """Sampled negatives, so that the table is learned by rows, from histories of very different lengths."""
    generator = np.random.default_rng(5)
    lists = [generator.integers(0, 60, size=size).tolist() for size in (3, 40, 5, 17, 9, 26, 4, 33)]
    settings = encoder_settings(width=8, layers=1, negatives=12, dropout=0.2)
    module = NextItemModel(settings, num_items=60, history_length=12, generator=torch.Generator().manual_seed(1))
    assert module.sparse_tables == ("items",)
    windows = TrainingWindows.cut(sequences_of(lists), split_none(sequences_of(lists)), length=12)
    return Setting(sequence_learner(module, windows=windows, seed=4), windows)


def attention() -> Setting:
    """Attention in the kernels, with dropout."""
    from tests.training.test_native_learner import native_learner

    settings = model_settings(dropout=0.2)
    return Setting(native_learner(training_settings(), model=settings), ring_instances())


def batch_normalised() -> Setting:
    """Attention in torch, with running statistics."""
    return Setting(torch_learner(training_settings(), model=model_settings(normalisation="batch")), ring_instances())


def schedule_for(setting: Setting) -> Schedule:
    return epoch_schedule(
        len(setting.instances),
        batch_size=7,
        epochs=6,
        learning_rate=0.01,
        decay="cosine",
        validations=2,
        patience=9,
        seed=2,
        remedy="",
    )


def learn(make: Callable[[], Setting]) -> Learned:
    """In one of the workers."""
    setting, exchange = make(), Exchange()
    learner = DataParallelLearner(setting.learner, exchange=exchange, parts=PARTS)
    progress = Trainer(
        "model",
        learner,
        WorkerInstances(setting.instances, PARTS, exchange),
        schedule=schedule_for(setting),
        validate=learner.validation(lambda: {"f@20": 0.5}),
        plan=None,
        listen=lambda _: None,
        clock=learner.seconds,
    ).run()
    weights = {name: array.copy() for name, array in setting.learner.model_arrays().items()}
    return Learned(weights, setting.learner.optimiser_arrays(), replace(progress, seconds=0.0), exchange.bytes_sent)


def assert_close(left: Arrays, right: Arrays) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        np.testing.assert_allclose(array, right[name], atol=2e-5, rtol=1e-4, err_msg=name)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with waiting_workers(2) as found:
        yield found


@pytest.mark.parametrize("make", [encoder, attention, batch_normalised])
def test_two_workers_learn_what_one_learns(make: Callable[[], Setting], workers: Workers) -> None:
    if make is attention and not native.is_available():
        pytest.skip("the kernels were not compiled")
    (alone,), pair = workers.together(1, learn, make), workers.together(2, learn, make)
    before = make().learner.model_arrays()
    assert any(not np.allclose(before[name], alone.weights[name], atol=1e-2) for name in before)
    assert_close(pair[0].weights, alone.weights)
    assert_close(pair[0].optimiser, alone.optimiser)
    assert pair[0].progress.step == alone.progress.step
    assert pair[0].progress.smoothed_loss == pytest.approx(alone.progress.smoothed_loss, rel=1e-4)
    assert alone.bytes_sent == 0 < pair[0].bytes_sent


def test_workers_have_the_same_bytes_and_so_has_the_next_run(workers: Workers) -> None:
    first, second = workers.together(2, learn, encoder), workers.together(2, learn, encoder)
    assert_same_bytes(first[0].weights, first[1].weights)
    assert_same_bytes(first[0].weights, second[0].weights)
    assert_same_bytes(first[0].optimiser, second[0].optimiser)
    assert first[0].progress == first[1].progress == second[0].progress


def test_parts_of_two_workers_are_those_of_two_threads() -> None:
    """So a cluster of single-threaded workers takes the steps of one machine with as many threads."""
    windows = encoder().instances
    assert isinstance(windows, TrainingWindows)
    numbers = np.array([7, 2, 11, 0, 5])
    whole = windows.batch(numbers)
    for part, expected in zip(windows.divide(numbers, 2), whole.divided(2), strict=True):
        found = windows.batch(part.instances)
        np.testing.assert_array_equal(found.inputs, expected.inputs)
        np.testing.assert_array_equal(found.targets, expected.targets)
        assert part.share == len(expected.inputs) / len(whole.inputs)


def test_parts_of_instances_are_neighbouring_users_and_all_of_the_batch() -> None:
    numbers = np.array([9, 3, 17, 12, 1])
    parts = ring_instances().divide(numbers, 2)
    assert [part.instances.tolist() for part in parts] == [[1, 3, 9], [12, 17]]
    assert [part.share for part in parts] == [0.6, 0.4]


def _numbers_and_shares() -> list[tuple[int, float]]:
    parts = WorkerInstances(ring_instances(), 4, Exchange()).batch(np.array([5, 6]), epoch=0)
    return [(part.number, part.share) for part in parts]


def test_a_batch_of_fewer_instances_than_parts_counts_each_once(workers: Workers) -> None:
    assert workers.together(2, _numbers_and_shares) == [[(0, 0.5), (2, 0.0)], [(1, 0.5), (3, 0.0)]]


def _gradients_of(rank: int) -> Gradients:
    """Worker 1 touches no row of the first table; both touch row 4 of the second."""
    rows = {"second": RowGradient(torch.tensor([1 + rank, 4]), torch.full((2, 3), 1.0 + rank))}
    if rank == 0:
        rows["first"] = RowGradient(torch.tensor([2]), torch.tensor([[0.25]]))
    return Gradients(0.5 + rank, {"weight": torch.full((2, 2), 10.0**rank)}, rows)


def _summed() -> Any:
    exchange = Exchange()
    notes = Notes(seconds=3.0 + exchange.rank, is_stopping=exchange.rank == 1)
    widths = {"first": 1, "second": 3}
    total, agreed = exchange.sum(_gradients_of(exchange.rank), notes=notes, table_widths=widths)
    rows = {name: (touched.rows.tolist(), touched.values.tolist()) for name, touched in total.rows.items()}
    return total.loss, total.dense["weight"].tolist(), rows, agreed


def test_rows_are_merged_whoever_touched_them(workers: Workers) -> None:
    answers = workers.together(2, _summed)
    assert answers[0] == answers[1]
    loss, weight, rows, agreed = answers[0]
    assert (loss, weight) == (2.0, [[11.0, 11.0], [11.0, 11.0]])
    assert rows == {"first": ([2], [[0.25]]), "second": ([1, 2, 4], [[1.0] * 3, [2.0] * 3, [3.0] * 3])}
    assert agreed == Notes(seconds=3.0, is_stopping=True)


def _refusal_of_drifted_weights() -> str:
    exchange, own = Exchange(), LinearLearner()
    own.weights[0] = 1e-12 * exchange.rank
    learner = DataParallelLearner(own, exchange=exchange, parts=2)
    try:
        learner.validation(lambda: {"f@20": 1.0})()
    except InputError as error:
        return str(error)
    return ""


def test_drifted_weights_are_refused_by_all_workers(workers: Workers) -> None:
    assert all("drifted apart" in said for said in workers.together(2, _refusal_of_drifted_weights))


def _refusal_of_one_part() -> str:
    try:
        DataParallelLearner(LinearLearner(), exchange=Exchange(), parts=1)
    except InputError as error:
        return str(error)
    return ""


def test_fewer_parts_than_workers_are_refused(workers: Workers) -> None:
    assert workers.together(2, _refusal_of_one_part) == ["Expected at least as many parts as workers (2), got 1."] * 2
