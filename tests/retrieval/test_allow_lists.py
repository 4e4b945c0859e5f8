"""Lists of items that alone a user may be given."""

from pathlib import Path

import polars as pl
import pytest

from beamtree.errors import DataError, InputError
from beamtree.retrieval.allow_lists import by_user, read_allow_lists, within
from beamtree.retrieval.request import Allow


def test_a_list_for_each_user_from_many_files(tmp_path: Path) -> None:
    pl.DataFrame({"user_id": [1], "allow": [[5, 6]], "more": ["x"]}).write_parquet(tmp_path / "1.parquet")
    (tmp_path / "2.ndjson").write_text('{"user_id": 2, "allow": [7]}\n{"user_id": 3, "allow": null}\n')
    assert by_user(read_allow_lists(tmp_path)) == {1: [5, 6], 2: [7], 3: []}


def test_what_is_no_list_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"user_id": [1], "allow": ["5"]}).write_parquet(tmp_path / "lists.parquet")
    with pytest.raises(DataError, match=r"expected the columns user_id and allow, a list of item ids"):
        read_allow_lists(tmp_path / "lists.parquet")


def test_a_user_with_two_lists_is_refused() -> None:
    with pytest.raises(DataError, match="several for 4"):
        read_allow_lists(pl.DataFrame({"user_id": [4, 4], "allow": [[1], [2]]}))


def test_what_everybody_may_get_holds_for_them_too() -> None:
    condition = pl.col("category") == "Drama"
    assert within(None, [1, 2]) == [1, 2]
    assert within([2, 3], [1, 2]) == [2]
    both = within(condition, [1, 2])
    assert isinstance(both, Allow)
    assert both.ids == [1, 2]
    assert both.where is condition
    narrowed = within(Allow(ids=[2, 3], where=condition), [1, 2])
    assert isinstance(narrowed, Allow)
    assert narrowed.ids == [2]
    assert narrowed.where is condition
    with pytest.raises(InputError, match="a list of ids"):
        within("12", [1])
