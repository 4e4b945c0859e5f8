import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.interactions import InteractionLog, read_interactions
from beamtree.data.items import read_items
from beamtree.data.sequences import Sequences
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import DataError, SettingsError

Row = tuple[int | str, int | str, float]


def log_of(*rows: Row) -> InteractionLog:
    return read_interactions(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))


SHOP = log_of(
    ("ann", "tea", 3),
    ("bob", "jam", 1),
    ("ann", "jam", 1),
    ("cat", "tea", 9),
    ("ann", "bun", 1),
    ("bob", "tea", 2),
    ("ann", "tea", 2),
)


def histories(dataset: Dataset) -> dict[object, list[object]]:
    return {
        user: dataset.items.decode(dataset.sequences.of(place)).to_list()
        for place, user in enumerate(dataset.users.ids)
    }


def test_each_user_in_the_order_of_time_with_ties_as_in_the_file() -> None:
    dataset = prepare_dataset(SHOP, min_interactions=2)
    assert histories(dataset) == {"ann": ["jam", "bun", "tea", "tea"], "bob": ["jam", "tea"]}
    assert dataset.items.ids.to_list() == ["bun", "jam", "tea"]
    assert dataset.sequences.items.tolist() == [1, 0, 2, 2, 1, 2]
    assert dataset.sequences.offsets.tolist() == [0, 4, 6]
    assert dataset.timestamps is not None
    assert dataset.timestamps.tolist() == [1, 1, 2, 3, 1, 2]


def test_short_users_go_and_their_items_with_them() -> None:
    log = log_of((1, 10, 0), (1, 11, 1), (2, 12, 0), (2, 10, 1), (2, 10, 2))
    dataset = prepare_dataset(log, min_interactions=3)
    assert dataset.users.ids.to_list() == [2]
    assert dataset.items.ids.to_list() == [10, 12]
    report = dataset.report
    assert report is not None
    assert (report.users_in, report.users_kept) == (2, 1)
    assert (report.items_in, report.items_kept) == (3, 2)
    assert (report.interactions_in, report.interactions_kept) == (5, 3)
    assert "1 of 2 users have at least 3 interactions" in report.lines()


def test_two_interactions_are_asked_for_by_default() -> None:
    rows = [(1, item, item) for item in range(2)] + [(2, item, item) for item in range(1)]
    assert prepare_dataset(log_of(*rows)).users.ids.to_list() == [1]


def test_no_user_long_enough_names_the_longest() -> None:
    with pytest.raises(DataError, match=r"No user has 15 interactions or more: .* of 3 users has 4\. Lower"):
        prepare_dataset(SHOP, min_interactions=15)


def test_one_single_item_is_an_error() -> None:
    with pytest.raises(DataError, match="one single item, 7"):
        prepare_dataset(log_of((1, 7, 0), (1, 7, 1)), min_interactions=1)


def test_items_that_the_item_table_lacks_have_no_category() -> None:
    items = pl.DataFrame({"item_id": ["tea", "gin"], "category": ["drinks", "drinks"], "price": [2, 9]})
    dataset = prepare_dataset(SHOP, items=items, min_interactions=2)
    assert dataset.item_table.columns == ["item_id", "category", "title", "price"]
    assert dataset.item_table.rows() == [
        ("bun", None, None, None),
        ("jam", None, None, None),
        ("tea", "drinks", None, 2),
    ]
    assert dataset.report is not None
    assert dataset.report.items_without_metadata == 2


def test_the_catalogue_can_be_the_item_table() -> None:
    items = pl.DataFrame({"item_id": ["tea", "gin"], "category": ["hot", "cold"]})
    dataset = prepare_dataset(SHOP, items=items, min_interactions=2, catalogue="items")
    assert dataset.items.ids.to_list() == ["bun", "gin", "jam", "tea"]
    assert dataset.item_table["category"].to_list() == [None, "cold", None, "hot"]
    with pytest.raises(SettingsError, match="needs an item table"):
        prepare_dataset(SHOP, catalogue="items")


def test_ids_match_across_number_and_text() -> None:
    log = log_of((1, 10, 0), (1, 11, 1))
    table = pl.DataFrame({"item_id": ["10", "eleven"], "category": ["a", "b"]})
    dataset = prepare_dataset(log, items=table, min_interactions=1)
    assert dataset.item_table["category"].to_list() == ["a", None]
    assert dataset.item_table["item_id"].to_list() == [10, 11]
    mixed = prepare_dataset(log, items=table, min_interactions=1, catalogue="items")
    assert mixed.items.ids.to_list() == ["10", "11", "eleven"]
    assert mixed.items.decode(mixed.sequences.of(0)).to_list() == ["10", "11"]


def test_a_repeated_item_id_is_refused() -> None:
    with pytest.raises(DataError, match="item_id 'tea' occurs 2 times"):
        prepare_dataset(SHOP, items=pl.DataFrame({"item_id": ["tea", "tea"]}), min_interactions=1)


@pytest.mark.parametrize("settings", [{"min_interactions": 0}, {"catalogue": "all"}])
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        prepare_dataset(SHOP, **settings)  # type: ignore[arg-type]


rows_strategy = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=60, unique=True
)


@given(rows_strategy)
def test_sequences_agree_with_plain_python(rows: list[tuple[int, int, int]]) -> None:
    expected: dict[int, list[int]] = {}
    for user, item, _ in sorted(rows, key=lambda row: (row[0], row[2])):
        expected.setdefault(user, []).append(item)
    expected = {user: items for user, items in expected.items() if len(items) >= 2}
    if len({item for items in expected.values() for item in items}) < 2:
        return
    dataset = prepare_dataset(log_of(*rows), min_interactions=2)
    assert histories(dataset) == expected


@given(rows_strategy)
def test_the_order_of_users_in_the_file_does_not_matter(rows: list[tuple[int, int, int]]) -> None:
    rows = [*rows, (9, 0, 0), (9, 1, 1)]
    once = prepare_dataset(log_of(*rows), min_interactions=1)
    regrouped = prepare_dataset(log_of(*sorted(rows, key=lambda row: -row[0])), min_interactions=1)
    assert once.fingerprint == regrouped.fingerprint


def test_the_fingerprint_names_the_data() -> None:
    base = prepare_dataset(SHOP, min_interactions=1)
    assert len(base.fingerprint) == 64
    assert prepare_dataset(SHOP, min_interactions=1).fingerprint == base.fingerprint
    others = [
        prepare_dataset(SHOP, min_interactions=2),
        prepare_dataset(log_of(("ann", "tea", 0), ("ann", "jam", 1)), min_interactions=1),
        prepare_dataset(log_of(("ann", "jam", 0), ("ann", "tea", 1)), min_interactions=1),
        prepare_dataset(log_of(("annt", "ea", 0), ("annt", "jam", 1)), min_interactions=1),
        prepare_dataset(log_of((1, 2, 0), (1, 3, 1)), min_interactions=1),
        prepare_dataset(log_of(("1", "2", 0), ("1", "x3", 1)), min_interactions=1),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 7


def test_the_fingerprint_tells_where_one_id_ends() -> None:
    logs = [log_of(("u", "ab", 0), ("u", "c", 1)), log_of(("u", "a", 0), ("u", "bc", 1))]
    assert len({prepare_dataset(log, min_interactions=1).fingerprint for log in logs}) == 2


def test_parts_that_contradict_each_other_are_refused() -> None:
    users, items = Vocabulary(pl.Series([1])), Vocabulary(pl.Series([5, 6]))
    table = pl.DataFrame({"item_id": [5, 6]})
    sequences = Sequences(np.array([0, 1], np.int32), np.array([0, 2]))
    assert Dataset(users, items, sequences, table).timestamps is None
    with pytest.raises(DataError, match="one sequence for each of 2 users, got 1"):
        Dataset(Vocabulary(pl.Series([1, 2])), items, sequences, table)
    with pytest.raises(DataError, match="one row per item"):
        Dataset(users, items, sequences, table.reverse())
    with pytest.raises(DataError, match="one time per interaction"):
        Dataset(users, items, sequences, table, np.array([1]))


def shared_data() -> Path:
    given_folder = os.environ.get("BEAMTREE_DATA")
    return Path(given_folder) if given_folder else Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.mark.skipif(not (shared_data() / "ml-1m").is_dir(), reason="the real logs are not here")
def test_movielens_1m_has_the_published_size() -> None:
    log = read_interactions(shared_data() / "ml-1m" / "interactions.parquet")
    dataset = prepare_dataset(log, items=read_items(shared_data() / "ml-1m" / "items.parquet"))
    assert (len(dataset.users), len(dataset.items), len(dataset.sequences.items)) == (6_040, 3_706, 1_000_209)
    assert dataset.item_table["category"].n_unique() == 18
    assert dataset.item_table["title"].null_count() == 0


def test_the_fingerprint_knows_the_times_that_a_split_by_time_cuts_at() -> None:
    def fingerprint(last: int) -> str:
        rows = {"user_id": [1, 1, 2, 2], "item_id": [3, 4, 3, 4], "timestamp": [1, 2, 3, last]}
        return prepare_dataset(InteractionLog(pl.DataFrame(rows)), min_interactions=1).fingerprint

    assert fingerprint(4) == fingerprint(4)
    assert fingerprint(4) != fingerprint(5)
