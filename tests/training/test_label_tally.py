"""The mean label of each level, every instance counted once."""

import numpy as np

from beamtree.training.label_tally import LabelTally, merge_states

LABELS = np.array([[0, 1], [0, 1], [1, 1], [0, 0.5]], dtype=np.float32)


def test_an_instance_counts_once_however_often_it_is_met() -> None:
    tally = LabelTally(11, height=2)
    assert tally.means().tolist() == []
    tally.add(np.array([9, 3, 9, 10]), LABELS[[0, 1, 0, 2]])
    assert tally.means().tolist() == [1 / 3, 1.0]
    tally.add(np.array([10, 0]), LABELS[[2, 3]])
    assert tally.means().tolist() == [1 / 4, 3.5 / 4]


def test_after_a_restart_it_remembers_what_was_counted() -> None:
    before, after = LabelTally(11, height=2), LabelTally(11, height=2)
    before.add(np.array([9, 3]), LABELS[[0, 1]])
    after.restore(before.state())
    after.add(np.array([3, 10]), LABELS[[1, 2]])
    assert after.means().tolist() == [1 / 3, 1.0]
    assert before.means().tolist() == [0.0, 1.0], "its state was a copy"


def test_states_of_workers_are_one_state() -> None:
    """Instance 9 was met by both workers: it is one of three instances, and weighs twice in the mean."""
    tallies = [LabelTally(11, height=2), LabelTally(11, height=2)]
    tallies[0].add(np.array([9, 3]), LABELS[[0, 1]])
    tallies[1].add(np.array([9, 10]), LABELS[[0, 2]])
    states = [{"seconds": np.array(1.0 + place), **tally.state()} for place, tally in enumerate(tallies)]
    merged, whole = merge_states(states), LabelTally(11, height=2)
    whole.restore(merged)
    assert merged["seconds"] == 2.0
    np.testing.assert_allclose(whole.means(), [1 / 4, 1.0])
    whole.add(np.array([9, 3, 10]), LABELS[[0, 1, 2]])
    np.testing.assert_allclose(whole.means(), [1 / 4, 1.0], err_msg="all of them were counted")


def test_states_without_a_tally_have_their_seconds_alone() -> None:
    assert merge_states([{"seconds": np.array(3.0)}, {"seconds": np.array(2.0)}]) == {"seconds": 3.0}
