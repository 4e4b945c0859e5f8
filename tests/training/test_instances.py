import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.data.split import Spans
from beamtree.errors import DataError
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import TrainingInstances
from tests.small import sequences_of

SEQUENCES = sequences_of([[0, 1, 2, 3], [4, 5], [6], [7, 8, 9]])


def spans_of(*pairs: tuple[int, int]) -> Spans:
    start, end = np.array(pairs, dtype=np.int64).T
    return Spans(user=np.arange(len(pairs), dtype=np.int32), start=start.copy(), end=end.copy())


def pairs_of(instances: TrainingInstances, *, length: int) -> list[tuple[list[int], int]]:
    batch = instances.batch(np.arange(len(instances)))
    pairs = zip(batch.histories.latest(length).tolist(), batch.targets[:, 0].tolist(), strict=True)
    return list(pairs)


def test_every_position_from_the_first_target_on_is_an_instance() -> None:
    """The last item of the first user lies outside its span: it is neither target nor history."""
    spans = spans_of((0, 3), (4, 6), (6, 7), (7, 10))
    instances = TrainingInstances(SEQUENCES, spans, first_target=1)
    assert pairs_of(instances, length=2) == [([-1, 0], 1), ([0, 1], 2), ([-1, 4], 5), ([-1, 7], 8), ([7, 8], 9)]
    later = TrainingInstances(SEQUENCES, spans, first_target=2)
    assert pairs_of(later, length=3) == [([-1, 0, 1], 2), ([-1, 7, 8], 9)]


def test_a_batch_takes_instances_in_any_order_and_knows_whose_they_are_and_when() -> None:
    instances = TrainingInstances(SEQUENCES, spans_of((0, 4), (4, 6)), first_target=1, times=10 * np.arange(10))
    batch = instances.batch(np.array([3, 0, 2]))
    assert batch.targets.tolist() == [[5], [1], [3]]
    assert [batch.histories.row(row).tolist() for row in range(3)] == [[4], [0], [0, 1, 2]], "whole histories"
    assert batch.histories.ends.tolist() == [5, 1, 3]
    assert batch.users is not None
    assert batch.users.tolist() == [1, 0, 0]
    assert batch.times is not None
    assert batch.times.tolist() == [50, 10, 30], "of the very next interaction"


def test_a_log_without_any_target_is_refused() -> None:
    with pytest.raises(DataError, match="more than 4 interactions, found none among 2 users"):
        TrainingInstances(SEQUENCES, spans_of((0, 4), (4, 6)), first_target=4)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    first_target=st.integers(1, 5),
    history_length=st.integers(1, 6),
)
def test_instances_equal_those_of_two_plain_loops(lengths: list[int], first_target: int, history_length: int) -> None:
    items = iter(range(sum(lengths)))
    lists = [[next(items) for _ in range(length)] for length in lengths]
    expected = [
        ([-1] * max(0, history_length - place) + items[max(0, place - history_length) : place], items[place])
        for items in lists
        for place in range(first_target, len(items))
    ]
    sequences = sequences_of(lists)
    spans = spans_of(*zip(sequences.offsets[:-1].tolist(), sequences.offsets[1:].tolist(), strict=True))
    if expected:
        instances = TrainingInstances(sequences, spans, first_target=first_target)
        assert pairs_of(instances, length=history_length) == expected
    else:
        with pytest.raises(DataError):
            TrainingInstances(sequences, spans, first_target=first_target)


WIDE = sequences_of([list(range(10)), list(range(20, 26))])


def drawn_targets(*, horizon: int, seed: int = 0, epoch: int = 0) -> list[int]:
    spans = spans_of((0, 9), (10, 16))
    instances = TrainingInstances(WIDE, spans, first_target=1, horizon=TargetHorizon(horizon, seed=seed))
    drawn: list[int] = instances.batch(np.arange(len(instances)), epoch=epoch).targets[:, 0].tolist()
    return drawn


def test_targets_come_from_the_next_interactions_of_the_same_span_each_as_often() -> None:
    """The last item of the first user lies outside its span; its neighbour is another user's first."""
    nearest = drawn_targets(horizon=1)
    draws = np.array([drawn_targets(horizon=3, epoch=epoch) for epoch in range(600)])
    for instance, near in enumerate(nearest):
        last = 8 if near < 20 else 25
        possible = list(range(near, min(near + 3, last + 1)))
        found, counts = np.unique(draws[:, instance], return_counts=True)
        assert found.tolist() == possible
        assert counts.min() > 0.7 * 600 / len(possible)


def test_a_draw_depends_on_seed_epoch_and_instance_alone() -> None:
    spans = spans_of((0, 10), (10, 16))
    instances = TrainingInstances(WIDE, spans, first_target=1, horizon=TargetHorizon(4, seed=7))
    numbers = np.arange(len(instances))
    whole = instances.batch(numbers, epoch=2)
    for number in (5, 0, 13, 5):
        alone = instances.batch(np.array([number]), epoch=2)
        assert alone.targets[0].tolist() == whole.targets[number].tolist()
        assert alone.histories.row(0).tolist() == whole.histories.row(number).tolist()
    assert drawn_targets(horizon=4, epoch=1) != drawn_targets(horizon=4, epoch=2)
    assert drawn_targets(horizon=4, seed=1) != drawn_targets(horizon=4, seed=2)
    assert instances.targets().tolist() == instances.batch(numbers).targets[:, 0].tolist()


def test_with_a_horizon_of_one_every_epoch_and_seed_has_the_very_next() -> None:
    assert drawn_targets(horizon=1, seed=4, epoch=3) == [*range(1, 9), *range(21, 26)]
