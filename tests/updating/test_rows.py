"""New rows behind known ones: who is who, what is new, and who is held out."""

import numpy as np
import polars as pl
import pytest

from beamtree.data.interactions import InteractionLog
from beamtree.data.sequences import Sequences
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import DataError
from beamtree.updating.rows import extend_log, hold_out_newest, newer_rows
from beamtree.updating.state import LearnedLog

KNOWN = LearnedLog(
    Vocabulary(pl.Series(["a", "b"])),
    Sequences(np.array([0, 1, 2, 0], dtype=np.int32), np.array([0, 3, 4])),
    np.array([10, 20, 30, 25]),
)
ITEMS = pl.DataFrame({"item_id": [100, 101, 102, 103], "category": [None] * 4, "title": [None] * 4})


def rows(*given: tuple[str, int, int]) -> InteractionLog:
    schema = {"user_id": pl.String, "item_id": pl.Int64, "timestamp": pl.Int64}
    return InteractionLog(pl.DataFrame(given, schema=schema, orient="row"))


def test_rows_that_are_not_newer_are_passed_over_and_counted() -> None:
    new, skipped = newer_rows(rows(("a", 100, 30), ("a", 101, 31), ("c", 100, 5)), KNOWN, row_order=False)
    assert new.rows() == [("a", 101, 31)]
    assert skipped == 2


def test_a_log_without_a_newer_row_is_refused() -> None:
    with pytest.raises(DataError, match=r"Expected rows after 30, .*the latest of these 1 rows is at 30"):
        newer_rows(rows(("a", 100, 30)), KNOWN, row_order=False)


def test_without_times_every_row_is_new() -> None:
    new, skipped = newer_rows(rows(("a", 100, 0)), KNOWN, row_order=True)
    assert (new.height, skipped) == (1, 0)


def test_new_rows_stand_behind_known_ones_and_new_users_behind_all() -> None:
    log = rows(("c", 103, 40), ("a", 103, 50), ("b", 101, 45), ("a", 101, 40), ("c", 100, 41))
    extended = extend_log(KNOWN, log.frame, item_table=ITEMS, skipped=0)
    dataset = extended.dataset
    assert dataset.users.ids.to_list() == ["a", "b", "c"]
    assert [dataset.sequences.of(user).tolist() for user in range(3)] == [[0, 1, 2, 1, 3], [0, 1], [3, 0]]
    assert dataset.timestamps is not None
    assert dataset.timestamps.tolist() == [10, 20, 30, 40, 50, 25, 45, 40, 41]
    assert extended.known_end.tolist() == [3, 6, 7]
    assert extended.num_new == 5


def test_ids_of_another_kind_are_refused() -> None:
    known = LearnedLog(Vocabulary(pl.Series([1, 2])), KNOWN.sequences, KNOWN.timestamps)
    with pytest.raises(DataError, match=r"Expected user ids like 1, as the model knows them, got 'x'\. Spell"):
        extend_log(known, rows(("x", 100, 40)).frame, item_table=ITEMS, skipped=0)


def test_known_users_with_new_rows_are_held_out_and_their_new_rows_are_not_learned_from() -> None:
    log = rows(("c", 103, 40), ("a", 103, 50), ("a", 101, 51), ("c", 100, 41))
    extended = extend_log(KNOWN, log.frame, item_table=ITEMS, skipped=0)
    split = hold_out_newest(extended, exclude_seen=False, seed=0)
    assert split.validation.user.tolist() == [0]  # b has nothing new, c has no history
    labels, _ = split.validation.labels(extended.dataset.sequences, distinct=True)
    assert labels.tolist() == [3, 1]
    spans = zip(split.train.start, split.train.end, strict=True)
    learned = [extended.dataset.sequences.items[a:b].tolist() for a, b in spans]
    assert learned == [[0, 1, 2], [0], [3, 0]]
    assert len(split.test) == 0


def test_users_who_met_nothing_new_are_not_asked_where_seen_items_are_not_recommended() -> None:
    extended = extend_log(KNOWN, rows(("a", 100, 50), ("b", 102, 51)).frame, item_table=ITEMS, skipped=0)
    assert hold_out_newest(extended, exclude_seen=True, seed=0).validation.user.tolist() == [1]
    nobody = extend_log(KNOWN, rows(("a", 100, 50)).frame, item_table=ITEMS, skipped=0)
    assert len(hold_out_newest(nobody, exclude_seen=True, seed=0).validation) == 0


def test_known_rows_age_and_new_ones_count_by_their_events() -> None:
    day, newest = 86_400, 1_700_000_000
    known = LearnedLog(
        KNOWN.users,
        Sequences(KNOWN.sequences.items, KNOWN.sequences.offsets, np.array([1, 0.5, 1, 0], dtype=np.float32)),
        np.array([newest - day, newest - day, newest, newest]),
    )
    new = rows(("a", 103, newest + 9 * day), ("b", 101, newest + 10 * day)).frame.with_columns(
        weight=pl.Series([4.0, 0.0], dtype=pl.Float32)
    )
    extended = extend_log(known, new, item_table=ITEMS, skipped=0, half_life_days=10)
    weights = extended.dataset.sequences.weights
    assert weights is not None
    np.testing.assert_allclose(weights, [0.5, 0.25, 0.5, 4 * 0.5**0.1, 0.0, 0.0], rtol=1e-6)
    split = hold_out_newest(extended, exclude_seen=False, seed=0)
    assert split.validation.user.tolist() == [0], "the new row of the other user is no target"


def test_rows_that_all_count_one_stay_so() -> None:
    extended = extend_log(KNOWN, rows(("a", 103, 40)).frame, item_table=ITEMS, skipped=0)
    assert extended.dataset.sequences.weights is None
    weighed = rows(("a", 103, 40)).frame.with_columns(weight=pl.Series([3.0], dtype=pl.Float32))
    extended = extend_log(KNOWN, weighed, item_table=ITEMS, skipped=0)
    assert extended.dataset.sequences.weights is not None
    assert extended.dataset.sequences.weights.tolist() == [1.0, 1.0, 1.0, 3.0, 1.0]
