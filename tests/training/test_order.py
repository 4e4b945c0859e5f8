"""The order of the batches: what an epoch visits, and that a step's batch depends on seed and step alone."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.training.order import ShuffledOrder, full_batches, whole_epochs

sizes = given(num_instances=st.integers(1, 50), batch_size=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))


def epoch_of(order: ShuffledOrder, epoch: int) -> list[list[int]]:
    steps = range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch)
    return [order.instances_of(step).tolist() for step in steps]


@settings(max_examples=30, deadline=None)
@sizes
def test_full_batches_visit_no_instance_twice_an_epoch_and_leave_out_less_than_a_batch(
    num_instances: int, batch_size: int, seed: int
) -> None:
    order = full_batches(num_instances, batch_size=batch_size, seed=seed)
    size = min(batch_size, num_instances)
    for epoch in range(3):
        batches = epoch_of(order, epoch)
        visited = [number for batch in batches for number in batch]
        assert {len(batch) for batch in batches} == {size}
        assert len(set(visited)) == len(visited) == order.instances_per_epoch > num_instances - size
        assert set(visited) <= set(range(num_instances))


@settings(max_examples=30, deadline=None)
@sizes
def test_whole_epochs_visit_every_instance_once_in_batches_of_nearly_one_size(
    num_instances: int, batch_size: int, seed: int
) -> None:
    order = whole_epochs(num_instances, batch_size=batch_size, seed=seed)
    for epoch in range(3):
        lengths = [len(batch) for batch in epoch_of(order, epoch)]
        assert sorted(np.concatenate(epoch_of(order, epoch)).tolist()) == list(range(num_instances))
        assert max(lengths) <= batch_size
        assert max(lengths) - min(lengths) <= 1
        assert len(lengths) == -(-num_instances // batch_size)


@pytest.mark.parametrize("make", [full_batches, whole_epochs])
def test_the_batch_of_a_step_depends_on_seed_and_step_alone(make: Callable[..., ShuffledOrder]) -> None:
    """Whoever starts at step 7, or goes back and forth, sees what one sees who came all the way."""
    straight = make(20, batch_size=6, seed=3)
    batches = [straight.instances_of(step).tolist() for step in range(9)]
    jumping = make(20, batch_size=6, seed=3)
    for step in (7, 0, 8, 3, 2, 7, 1):
        assert jumping.instances_of(step).tolist() == batches[step]
    epoch = straight.steps_per_epoch
    assert batches[0:epoch] != batches[epoch : 2 * epoch], "each epoch is shuffled anew"
    assert make(20, batch_size=6, seed=4).instances_of(0).tolist() != batches[0]
