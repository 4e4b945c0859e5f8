"""Gradients of several batches add up to those of all their instances together."""

import numpy as np
import pytest
import torch

from beamtree.errors import InputError
from beamtree.training.gradients import Gradients, RowGradient
from tests.small import assert_same_bytes, model_settings
from tests.training.runs import ring_instances, torch_learner, training_settings


def test_gradients_of_two_machines_are_those_of_one() -> None:
    """Whole levels, so that nothing is drawn; ten instances on one machine, thirty on the other."""
    learner = torch_learner(training_settings(negatives=64), model=model_settings(history_table="separate"))
    instances = ring_instances()
    whole = learner.gradients(instances.batch(np.arange(40)), step=3)
    parts = [learner.gradients(instances.batch(rows), step=3) for rows in (np.arange(10), np.arange(10, 40))]
    together = Gradients.sum(parts, weights=[10 / 40, 30 / 40])
    assert together.loss == pytest.approx(whole.loss, rel=1e-6)
    assert together.dense.keys() == whole.dense.keys()
    assert together.rows.keys() == whole.rows.keys() == {"attention/node_table", "attention/item_table"}
    for name, gradient in whole.dense.items():
        torch.testing.assert_close(together.dense[name], gradient, rtol=1e-4, atol=1e-6)
    for name, touched in whole.rows.items():
        assert torch.equal(together.rows[name].rows, touched.rows)
        torch.testing.assert_close(together.rows[name].values, touched.values, rtol=1e-4, atol=1e-6)


def test_rows_are_merged_and_a_table_that_one_did_not_touch_is_taken_from_the_others() -> None:
    left = Gradients(1.0, {"w": torch.tensor([1.0])}, {"a": row_gradient({1: 10.0, 4: 20.0})})
    right = Gradients(
        3.0, {"w": torch.tensor([5.0])}, {"a": row_gradient({0: 1.0, 4: 2.0}), "b": row_gradient({7: 4.0})}
    )
    total = Gradients.sum([left, right], weights=[1.0, 0.5])
    assert total.loss == 2.5
    assert total.dense["w"].tolist() == [3.5]
    assert total.rows["a"].rows.tolist() == [0, 1, 4]
    assert total.rows["a"].values.tolist() == [[0.5], [10.0], [21.0]]
    assert (total.rows["b"].rows.tolist(), total.rows["b"].values.tolist()) == ([7], [[2.0]])


def row_gradient(values: dict[int, float]) -> RowGradient:
    return RowGradient(torch.tensor(list(values)), torch.tensor(list(values.values()))[:, None])


def test_repeated_rows_add_up_and_absent_ones_are_dropped() -> None:
    found = RowGradient.summed(torch.tensor([5, -1, 2, 5]), torch.tensor([[1.0], [100.0], [3.0], [4.0]]))
    assert (found.rows.tolist(), found.values.tolist()) == ([2, 5], [[3.0], [5.0]])


def test_running_statistics_are_averaged_and_applied() -> None:
    learner = torch_learner(training_settings(), model=model_settings(normalisation="batch"))
    parts = [learner.gradients(ring_instances().batch(np.arange(first, first + 8)), step=0) for first in (0, 8)]
    together = Gradients.sum(parts, weights=[0.5, 0.5])
    learner.apply(together, step=0, learning_rate=0.1)
    arrays = learner.model_arrays()
    name = "attention/norm.0.running_mean"
    np.testing.assert_allclose(arrays[name], sum(part.statistics[name].numpy() for part in parts) / 2, rtol=1e-5)
    assert arrays["attention/norm.0.num_batches_tracked"] == 1


def test_a_weight_for_each_is_asked_for() -> None:
    with pytest.raises(InputError, match="a weight for each of 0 gradients, got 1"):
        Gradients.sum([], weights=[1.0])


def test_the_sum_of_one_is_itself() -> None:
    learner = torch_learner(training_settings())
    gradients = learner.gradients(ring_instances().batch(np.arange(8)), step=0)
    again = Gradients.sum([gradients], weights=[1.0])
    as_arrays = [{name: tensor.numpy() for name, tensor in each.dense.items()} for each in (gradients, again)]
    assert_same_bytes(*as_arrays)
    assert torch.equal(gradients.rows["attention/node_table"].values, again.rows["attention/node_table"].values)
