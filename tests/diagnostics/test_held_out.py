"""Whom the diagnostics ask."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from beamtree.data.dataset import Dataset
from beamtree.data.split import split_none, split_users
from beamtree.data.vocabulary import Vocabulary
from beamtree.diagnostics.held_out import SampledUsers, sample_held_out
from beamtree.errors import DataError, InputError
from tests.small import sequences_of

SEQUENCES = sequences_of([[user * 10 + item for item in range(9)] for user in range(10)])
ITEMS = pl.DataFrame({"item_id": np.arange(99), "category": [None] * 99, "title": [None] * 99})
DATASET = Dataset(
    Vocabulary(pl.Series(np.arange(10))), Vocabulary(ITEMS["item_id"]), SEQUENCES, ITEMS.cast({"category": pl.String})
)
SPLIT = split_users(SEQUENCES, seed=0, validation_share=0.4, test_share=0.2)


def test_targets_are_spread_over_what_came_later_and_histories_end_before_them() -> None:
    """Nine items: the first four are shown; of the five later ones the 1st, 2nd and 4th are targets."""
    asked = sample_held_out(DATASET, SPLIT, group="validation", count=2, seed=0)
    assert (asked.group, len(asked.users), asked.available, len(asked)) == ("validation", 2, 4, 6)
    user = int(asked.users.user[0])
    assert (asked.targets[:3] - user * 10).tolist() == [4, 5, 7]
    assert (asked.histories(3)[2] - user * 10).tolist() == [4, 5, 6]
    assert asked.user_row.tolist() == [0, 0, 0, 1, 1, 1]


def test_histories_never_reach_beyond_the_users_own() -> None:
    asked = sample_held_out(DATASET, SPLIT, group="test", count=99, seed=0)
    assert asked.histories(6)[0, :2].tolist() == [-1, -1]
    assert len(asked.users) == 2


def test_a_user_with_one_later_item_has_one_target() -> None:
    users = SPLIT.validation.take(slice(0, 1))
    short = replace(users, label_end=users.label_start + 1)
    asked = SampledUsers("validation", short, 1, SEQUENCES)
    assert asked.position.tolist() == users.label_start.tolist()


def test_the_seed_decides_who_is_asked() -> None:
    chosen = {
        tuple(sample_held_out(DATASET, SPLIT, group="validation", count=2, seed=seed).users.user) for seed in range(8)
    }
    assert len(chosen) > 1
    again = sample_held_out(DATASET, SPLIT, group="validation", count=2, seed=3).users.user
    assert again.tolist() == sample_held_out(DATASET, SPLIT, group="validation", count=2, seed=3).users.user.tolist()


def test_users_on_whom_nothing_was_chosen_are_asked_and_others_stand_in() -> None:
    assert sample_held_out(DATASET, SPLIT, group=None, count=5, seed=0).group == "test"
    only_validation = split_users(SEQUENCES, seed=0, validation_share=0.2, test_share=0.0)
    assert sample_held_out(DATASET, only_validation, group=None, count=5, seed=0).group == "validation"
    only_test = split_users(SEQUENCES, seed=0, validation_share=0.0, test_share=0.2)
    with pytest.raises(DataError, match="held-out validation users, but there are none"):
        sample_held_out(DATASET, only_test, group="validation", count=5, seed=0)


def test_nobody_held_out() -> None:
    with pytest.raises(DataError, match="nothing held out"):
        sample_held_out(DATASET, split_none(SEQUENCES), group=None, count=5, seed=0)
    with pytest.raises(InputError, match="at least 1"):
        sample_held_out(DATASET, SPLIT, group=None, count=0, seed=0)
