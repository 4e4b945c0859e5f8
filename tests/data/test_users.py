"""User tables and context columns: how they are read, and that they stay with their users and rows."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from beamtree.config import Config
from beamtree.data.dataset import prepare_dataset
from beamtree.data.interactions import InteractionLog, read_interactions
from beamtree.data.prepare import prepare_log
from beamtree.data.users import read_users
from beamtree.errors import DataError

LOG = pl.DataFrame(
    {
        "user_id": [2, 1, 2, 1],
        "item_id": ["b", "a", "a", "b"],
        "timestamp": [20, 10, 10, 20],
        "device": ["phone", None, "tablet", "phone"],
        "hour": [9, 8, 7, 6],
    }
)


def test_a_user_table_has_typed_columns_and_ids_in_front(tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text("age,uid,joined,city\n31,7,2024-01-02,Oslo\n,8,,Rome\n")
    table = read_users(path, columns={"user_id": "uid", "item_id": "sku"})
    assert table.columns == ["user_id", "age", "joined", "city"]
    assert table["user_id"].to_list() == [7, 8]
    assert table["age"].to_list() == [31, None]
    assert table["joined"].to_list() == [1_704_153_600.0, None], "dates are seconds since 1970"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uid,age\n1,2\n", r"no column 'user_id'; it has uid, age.*read_users\(.*--column user_id=uid"),
        ("user_id,age\n1,2\n1,3\n", "user_id 1 occurs 2 times, first in line 2 and line 3; .*Keep one row per user"),
        ("user_id,age\n,2\n", "line 2, column 'user_id': user_id is missing"),
        ("user_id,age\n", "no rows. Expected a user table with one user per row"),
    ],
)
def test_user_tables_that_cannot_be_used_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "users.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_users(path)


def test_rows_of_users_and_contexts_of_interactions_are_in_dense_order() -> None:
    log = read_interactions(LOG, context=["device", "hour"])
    assert log.frame.columns == ["user_id", "item_id", "timestamp", "context.device", "context.hour"]
    users = pl.DataFrame({"user_id": ["3", "1"], "city": ["Rome", "Oslo"]})
    dataset = prepare_dataset(log, users=users)
    assert dataset.user_table is not None
    assert dataset.user_table.rows() == [(1, "Oslo"), (2, None)]
    assert dataset.context is not None
    assert dataset.context.rows(named=True) == [
        {"device": None, "hour": 8},
        {"device": "phone", "hour": 6},
        {"device": "tablet", "hour": 7},
        {"device": "phone", "hour": 9},
    ]
    assert dataset.fingerprint == prepare_dataset(read_interactions(LOG)).fingerprint


def test_contexts_stay_with_their_rows_through_files_bad_rows_filters_and_ties(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user_id,item_id,timestamp,rating,place\n1,a,1,5,home\n1,b,,5,work\n1,c,2,1,road\n")
    (tmp_path / "b.csv").write_text("user_id,item_id,timestamp,rating\n1,d,3,5\n")
    log = read_interactions(
        tmp_path, context=["place"], min_rating=3, bad_rows="skip", rejects_file=tmp_path / "rejects.txt"
    )
    assert log.frame.select("item_id", "context.place").rows() == [("a", "home"), ("d", None)]
    rows = [(user, f"{item}", 1, item) for user in range(30) for item in range(4)]
    tied = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "place"], orient="row")
    config = Config.resolve({"log": {"features": {"context": {"place": "category"}}}})
    prepared = prepare_log(read_interactions(tied, context=["place"]), config=config)
    assert prepared.config.decided.shuffle_ties
    context, items = prepared.dataset.context, prepared.dataset.sequences.items
    assert context is not None
    assert context["place"].to_list() == items.tolist()
    assert items[:4].tolist() != items[4:8].tolist() or items[8:12].tolist() != items[:4].tolist()


def test_a_repeat_in_another_context_is_a_repeat() -> None:
    twice = pl.concat([LOG, LOG.with_columns(device=pl.lit("watch"))])
    log = read_interactions(twice, context=["device"])
    assert log.report.rows_repeated == 4
    assert "watch" not in log.frame["context.device"].to_list()


def test_tables_that_do_not_fit_the_data_set_are_refused() -> None:
    dataset = prepare_dataset(InteractionLog(LOG.select("user_id", "item_id", "timestamp")))
    with pytest.raises(DataError, match="user table to have one row per user"):
        replace(dataset, user_table=pl.DataFrame({"user_id": [2, 1]}))
    with pytest.raises(DataError, match="one context per interaction, 4, got 1"):
        replace(dataset, context=pl.DataFrame({"device": ["phone"]}))
