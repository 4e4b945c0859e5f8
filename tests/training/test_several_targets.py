"""Several targets of one history, from the log to a step of learning."""

import numpy as np
import pytest

from beamtree import native
from beamtree.config import Config
from beamtree.data.requests import Histories
from beamtree.data.sequences import Sequences
from beamtree.data.split import Spans
from beamtree.fitting.computation import build_learner
from beamtree.model.score import build_score
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import Batch, TrainingInstances, one_target_each
from beamtree.training.learner import TorchLearner
from beamtree.training.negatives import UniformNegatives
from beamtree.tree.build import plant
from beamtree.types import NOTHING
from tests.training.runs import take_step

SEQUENCE = np.arange(10, dtype=np.int32)


def instances(*, horizon: int, each: int, seed: int = 0) -> TrainingInstances:
    spans = Spans(user=np.array([0], dtype=np.int32), start=np.array([0]), end=np.array([10]))
    sequences = Sequences(SEQUENCE, np.array([0, 10]))
    return TrainingInstances(sequences, spans, first_target=1, horizon=TargetHorizon(horizon, each=each, seed=seed))


def test_as_many_targets_as_the_horizon_are_all_that_follow() -> None:
    batch = instances(horizon=3, each=3).batch(np.arange(9))
    for number, targets in enumerate(batch.targets):
        following = SEQUENCE[number + 1 : number + 4]
        assert sorted(targets[targets != NOTHING]) == list(following)


def test_fewer_targets_than_the_horizon_are_distinct_and_all_likely() -> None:
    seen = [instances(horizon=5, each=2, seed=seed).batch(np.array([2])).targets[0] for seed in range(300)]
    assert all(first != second for first, second in seen)
    share = np.bincount(np.concatenate(seen), minlength=10)[3:8] / 600
    np.testing.assert_allclose(share, 0.2, atol=0.05)


def test_the_first_of_several_targets_is_the_target_alone() -> None:
    several = instances(horizon=5, each=3)
    alone = several.with_one_target()
    numbers = np.arange(9)
    np.testing.assert_array_equal(several.batch(numbers).targets[:, :1], alone.batch(numbers).targets)
    np.testing.assert_array_equal(several.targets(), alone.targets())


def test_one_target_each_keeps_the_mean_over_histories() -> None:
    targets = np.array([[1, 2], [3, NOTHING]], dtype=np.int32)
    users, times = np.array([4, 6], dtype=np.int32), np.array([0.5, 2.5])
    several = Batch(Histories.of_lists([[7], [8, 9]]), targets, users=users, times=times)
    batch = one_target_each(several, height=2)
    np.testing.assert_array_equal(batch.targets, [[1], [2], [3]])
    np.testing.assert_array_equal(batch.histories.latest(2), [[-1, 7], [-1, 7], [8, 9]])
    np.testing.assert_array_equal(batch.requests.users, [4, 4, 6])
    np.testing.assert_array_equal(batch.requests.times, [0.5, 0.5, 2.5])
    assert batch.level_weights is not None
    np.testing.assert_allclose(batch.level_weights.mean(axis=0), [[1.0, 1.0]])
    np.testing.assert_allclose(batch.level_weights[:, 0, 0] / 3, [0.25, 0.25, 0.5])


def test_an_instance_without_a_target_is_left_out() -> None:
    targets = np.array([[NOTHING], [3]], dtype=np.int32)
    batch = one_target_each(Batch(Histories.of_lists([[7], [8]]), targets), height=1)
    np.testing.assert_array_equal(batch.targets, [[3]])
    np.testing.assert_array_equal(batch.level_weights, [[[0.5]]])


@pytest.mark.skipif(not native.is_available(), reason="needs the compiled kernels")
def test_kernels_and_torch_learn_the_same_from_whole_levels() -> None:
    config = Config.preset(
        "small",
        model={"layers": [8, 6, 4], "embedding_dim": 6, "network": {"windows": [2, 1], "attention_hidden": 4}},
        training={"negatives": 64, "target_horizon": 3},
    )
    tree = plant(np.random.default_rng(0).permutation(20).astype(np.int32), branching=2)
    histories = np.array([[1, 2, 3], [-1, 4, 5], [-1, -1, -1]], dtype=np.int32)
    targets = np.array([[4, 9, 11], [6, NOTHING, NOTHING], [0, 0, 19]], dtype=np.int32)
    batch = Batch(Histories.of_rows(histories), targets)
    fast = build_learner(build_score(config, tree, seed=1), config=config)
    plain = TorchLearner(
        build_score(config, tree, seed=1),
        draws=UniformNegatives(tree, counts=np.full(tree.height, 64)),
        settings=config.training,
    )
    assert not isinstance(fast, TorchLearner)
    assert take_step(fast, batch, step=1, learning_rate=1e-2) == pytest.approx(
        take_step(plain, batch, step=1, learning_rate=1e-2), rel=1e-5
    )
    name = "attention/node_table"
    np.testing.assert_allclose(fast.model_arrays()[name], plain.model_arrays()[name], atol=1e-4, rtol=1e-4)
