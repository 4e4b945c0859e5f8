"""Weights of interactions, from the sequences to the loss: what is a target, and what each counts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from beamtree import native
from beamtree.config import Config
from beamtree.data.requests import Histories
from beamtree.data.sequences import Sequences
from beamtree.data.split import split_none
from beamtree.errors import DataError
from beamtree.fitting.computation import build_learner
from beamtree.model.next_item import NextItemModel
from beamtree.model.proposal import Proposal
from beamtree.model.score import build_score
from beamtree.training.estimate import sequence_learner
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import Batch, TrainingInstances, one_target_each
from beamtree.training.learner import TorchLearner
from beamtree.training.negatives import UniformNegatives
from beamtree.training.windows import TrainingWindows
from beamtree.tree.build import plant
from beamtree.types import NOTHING
from tests.small import encoder_settings


def sequences_of(*weights: list[float]) -> Sequences:
    """A user for each list of weights; items are numbered through."""
    offsets = np.cumsum([0] + [len(entry) for entry in weights], dtype=np.int64)
    flat = np.concatenate([np.array(entry, dtype=np.float32) for entry in weights])
    return Sequences(np.arange(len(flat), dtype=np.int32), offsets, flat)


def instances_of(sequences: Sequences, horizon: TargetHorizon) -> TrainingInstances:
    split = split_none(sequences)
    return TrainingInstances(sequences, split.train, split.first_target, horizon=horizon)


def test_the_next_targets_are_drawn_and_rows_of_no_weight_are_passed_over() -> None:
    sequences = sequences_of([0, 0, 1, 0, 1, 0, 1, 0, 0], [0, 0, 0], [0, 1])
    instances = instances_of(sequences, TargetHorizon(2, each=2))
    batch = instances.batch(np.arange(len(instances)))
    found = {
        tuple(batch.histories.row(row).tolist()): sorted(targets[targets != NOTHING].tolist())
        for row, targets in enumerate(batch.targets)
    }
    assert found == {
        (0,): [2, 4],
        (0, 1): [2, 4],
        (0, 1, 2): [4, 6],
        (0, 1, 2, 3): [4, 6],
        (0, 1, 2, 3, 4): [6],
        (0, 1, 2, 3, 4, 5): [6],
        (12,): [13],
    }
    assert instances.targets().tolist() == batch.targets[:, 0].tolist()
    assert batch.target_weights is not None
    np.testing.assert_array_equal(batch.target_weights, batch.targets != NOTHING)


def test_weights_of_instances_are_those_of_their_targets_and_one_on_average() -> None:
    batch = instances_of(sequences_of([9, 1, 2, 3, 2]), TargetHorizon()).batch(np.arange(4))
    assert batch.target_weights is not None
    np.testing.assert_allclose(batch.target_weights[:, 0], [0.5, 1.0, 1.5, 1.0])


def test_a_log_without_any_target_to_learn_from_is_refused() -> None:
    with pytest.raises(DataError, match="found none"):
        instances_of(sequences_of([1, 0, 0]), TargetHorizon())


def test_windows_share_positions_by_weight_and_end_with_the_last_target() -> None:
    sequences = sequences_of([1, 1, 0, 3, 0, 0], [1, 0, 0, 0])
    windows = TrainingWindows.cut(sequences, split_none(sequences), length=9, horizon=TargetHorizon(2, each=2))
    assert len(windows) == 1
    batch = windows.batch(np.array([0]))
    assert batch.inputs.tolist() == [0, 1, 2, 3, 4]
    assert [sorted(row) for row in batch.targets.tolist()] == [[1, 3], [-1, 3], [-1, 3], [-1, -1], [-1, -1]]
    assert batch.shares is not None
    totals = batch.shares.sum(axis=1)
    np.testing.assert_allclose(totals / totals[1], [2 / 3, 1, 1, 0, 0], rtol=1e-6)
    parts = TrainingWindows.cut(sequences, split_none(sequences), length=2, horizon=TargetHorizon(2, each=2))
    whole = parts.batch(np.arange(len(parts)))
    divided = [part.shares for part in whole.divided(2) if part.shares is not None]
    assert whole.shares is not None
    assert sum(shares.sum() for shares in divided) == pytest.approx(whole.shares.sum())


def test_the_encoder_learns_each_target_by_its_weight() -> None:
    """Where one target alone has weight, three positions of five come before it, and count 1 on average."""
    settings = encoder_settings(width=4, layers=1, dropout=0.0, negatives="all")
    encoder = NextItemModel(settings, num_items=8, history_length=5, generator=torch.Generator().manual_seed(1))
    proposal = Proposal(np.full(8, 1 / 8))
    weighed = sequences_of([0, 0, 0, 2, 0, 0])
    windows = TrainingWindows.cut(weighed, split_none(weighed), length=5)
    gradients = sequence_learner(encoder, windows=windows, seed=0).gradients(windows.batch(np.array([0])), step=0)

    def loss(inputs: list[int], target: int) -> float:
        targets = np.array([[NOTHING]] * (len(inputs) - 1) + [[target]], dtype=np.int32)
        found = encoder.loss(
            np.array(inputs, dtype=np.int32),
            targets,
            lengths=np.array([len(inputs)]),
            proposal=proposal,
            generator=torch.Generator().manual_seed(0),
        )
        return float(found.detach()) * len(inputs)

    each = [loss(list(range(length)), 3) for length in (1, 2, 3)]
    assert gradients.loss == pytest.approx(sum(each) / 5 * (5 / 3), rel=1e-5)


@pytest.mark.parametrize("kind", ["kernels", "torch"])
def test_attention_learns_each_instance_by_its_weight(kind: str) -> None:
    """An instance of weight 2 beside one of 0 has the loss of the first alone; half a weight halves it."""
    if kind == "kernels" and not native.is_available():
        pytest.skip("the kernels are not compiled")
    tree = plant(np.arange(8), branching=2)
    config = Config.resolve(
        {
            "model": {
                "parts": ["attention"],
                "embedding_dim": 4,
                "network": {"windows": [2, 1], "attention_hidden": 3},
            },
            "training": {"method": "dtr-u", "negatives": 100, "target_horizon": 1},
        }
    )
    score = build_score(config, tree, seed=3)
    learner = build_learner(score, config=config)
    if kind == "torch":
        sampler = UniformNegatives(tree, counts=np.full(tree.height, 100))
        learner = TorchLearner(score, draws=sampler, settings=config.training)

    def loss(targets: list[int], weights: list[float] | None) -> float:
        batch = Batch(
            Histories.of_lists([[1, 2], [3]][: len(targets)]),
            np.array(targets, dtype=np.int32)[:, None],
            target_weights=None if weights is None else np.array(weights, dtype=np.float32)[:, None],
        )
        return learner.gradients(batch, step=0).loss

    assert loss([4, 5], [2.0, 0.0]) == pytest.approx(loss([4], None), rel=1e-5)
    assert loss([4], [0.5]) == pytest.approx(0.5 * loss([4], None), rel=1e-5)


def test_several_targets_with_weights_are_as_many_instances() -> None:
    batch = Batch(
        Histories.of_lists([[0], [1]]),
        np.array([[4, 5], [6, NOTHING]], dtype=np.int32),
        target_weights=np.array([[1.0, 3.0], [2.0, 0.0]], dtype=np.float32),
    )
    single = one_target_each(batch, height=2)
    assert single.targets[:, 0].tolist() == [4, 5, 6]
    assert single.level_weights is not None
    np.testing.assert_allclose(single.level_weights[:, 0, 0] / 1.5, [0.5, 1.5, 2.0], rtol=1e-6)
    halved = replace(batch, level_weights=np.full((2, 2, 2), 0.5, dtype=np.float32))
    counted = halved.counted_levels(2)
    assert counted is not None
    np.testing.assert_allclose(counted[0, 1], np.array([1.5, 1.5]))
