from itertools import pairwise

import polars as pl

from beamtree.config import Config
from beamtree.data.interactions import InteractionLog
from beamtree.data.ties import settle_ties, shuffle_within
from tests.small import small_config

# Two baskets of one user, each listed by item.
BASKETS = pl.DataFrame({"user_id": [1] * 60, "item_id": [*range(60)], "timestamp": [5] * 30 + [9] * 30})


def shuffling(*, seed: int) -> Config:
    return small_config(data={"split_seed": seed}, decided={"shuffle_ties": True})


def shuffled(rows: pl.DataFrame, *, seed: int) -> pl.DataFrame:
    return settle_ties(InteractionLog(rows), config=shuffling(seed=seed)).frame


def test_tied_rows_are_shuffled_and_times_stay_in_order() -> None:
    found = shuffled(BASKETS, seed=0)
    assert found["timestamp"].to_list() == [5] * 30 + [9] * 30
    first = found["item_id"].to_list()[:30]
    assert sorted(first) == list(range(30))
    rising = sum(later > earlier for earlier, later in pairwise(first))
    assert 5 < rising < 25


def test_the_order_depends_on_the_seed_and_not_on_the_file() -> None:
    found = shuffled(BASKETS, seed=0)
    assert shuffled(BASKETS, seed=0).equals(found)
    assert shuffled(BASKETS.reverse(), seed=0).equals(found)
    assert shuffled(BASKETS.sample(fraction=1.0, shuffle=True, seed=3), seed=0).equals(found)
    assert shuffled(found, seed=0).equals(found), "shuffling again changes nothing"
    assert not shuffled(BASKETS, seed=1).equals(found)


def test_a_log_that_need_not_be_shuffled_is_left_alone() -> None:
    log = InteractionLog(BASKETS.reverse())
    assert settle_ties(log, config=small_config(decided={"shuffle_ties": False})) is log


def test_rows_are_shuffled_within_any_keys_and_keep_their_other_columns() -> None:
    rows = BASKETS.with_columns(timestamp=pl.lit(0), basket=pl.col("timestamp"), twin=-pl.col("item_id"))
    found = shuffle_within(rows, keys=("user_id", "timestamp", "basket"), seed=0)
    assert found["basket"].to_list() == [5] * 30 + [9] * 30
    assert (found["twin"] == -found["item_id"]).all()
    assert found.columns == rows.columns
