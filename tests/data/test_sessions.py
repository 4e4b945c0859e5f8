"""Logs without times, and several sessions per user: what comes after what is what the log says, and nothing else."""

from pathlib import Path

import polars as pl
import pytest

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.interactions import read_interactions, read_log
from beamtree.data.prepare import prepare_log
from beamtree.errors import DataError

ROWS = """visitor,session,page
ann,1,cats
bob,1,dogs
ann,1,apes
bob,1,bees
ann,2,bees
bob,2,cats
ann,2,dogs
"""


def titles(dataset: Dataset) -> dict[str, list[str]]:
    items = dataset.items.ids.to_list()
    users = dataset.users.ids.to_list()
    return {user: [items[item] for item in dataset.sequences.of(place)] for place, user in enumerate(users)}


def read(path: Path, **log: object) -> Dataset:
    columns = {"user_id": "visitor", "item_id": "page"} | log.pop("columns", {})  # type: ignore[operator]
    config = Config.resolve({"log": {"columns": columns, **log}})
    return prepare_log(read_log(path, config.log), config=config).dataset


def test_rows_of_several_users_and_sessions_without_times_stay_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text(ROWS)
    dataset = read(path, columns={"timestamp": "#row"})
    assert titles(dataset) == {"ann": ["cats", "apes", "bees", "dogs"], "bob": ["dogs", "bees", "cats"]}


def test_the_number_of_a_session_can_stand_for_its_time(tmp_path: Path) -> None:
    """Sessions come in the order of their numbers, wherever they are in the file; rows of one in that of the file."""
    header, *rows = ROWS.splitlines()
    moved = tmp_path / "visits.csv"
    moved.write_text("\n".join([header, *rows[4:], *rows[:4]]))
    dataset = read(moved, columns={"timestamp": "session"})
    assert titles(dataset) == {"ann": ["cats", "apes", "bees", "dogs"], "bob": ["dogs", "bees", "cats"]}


def test_sessions_without_an_order_of_their_own_are_refused_and_row_order_is_named(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text(ROWS.replace(",1,", ",x7f,").replace(",2,", ",a04,"))
    with pytest.raises(DataError, match=r"column 'session': expected an integer, .* got 'x7f'"):
        read(path, columns={"timestamp": "session"})


def test_tied_rows_are_shuffled_inside_their_session_alone() -> None:
    rows = [(user, session, f"{session}{item}") for user in range(20) for session in (1, 2) for item in "abcd"]
    table = pl.DataFrame(rows, schema=["user_id", "timestamp", "item_id"], orient="row")
    prepared = prepare_log(read_interactions(table), config=Config())
    assert prepared.config.decided.shuffle_ties, "rows of a session are sorted by item, which gives the next one away"
    found = titles(prepared.dataset)
    assert all([item[0] for item in items] == ["1"] * 4 + ["2"] * 4 for items in found.values())
    assert len({tuple(items) for items in found.values()}) > 10
