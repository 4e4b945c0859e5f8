from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from beamtree.data.items import check_items, read_items
from beamtree.errors import DataError


def test_an_item_table_keeps_what_it_carries(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("price,title,item_id,category\n1.5,Tea,7,9\n,Milk,8,\n")
    items = read_items(path)
    assert items["price"].dtype == pl.Float64
    assert items.columns[0] == "item_id"
    assert items.select("item_id", "category", "title", "price").rows() == [
        (7, "9", "Tea", 1.5),
        (8, None, "Milk", None),
    ]


def test_columns_can_be_mapped_and_missing_ones_are_named() -> None:
    table = pd.DataFrame({"asin": ["a"], "name": ["Tea"], "department": [3]})
    items = read_items(table, columns={"item_id": "asin", "title": "name", "category": "department"})
    assert items.select("item_id", "category", "title").rows() == [("a", "3", "Tea")]
    with pytest.raises(DataError, match=r"the table: no column 'item_id'.*--item-column item_id=asin"):
        read_items(table)
    with pytest.raises(DataError, match=r"no column 'nam' \(as title\).*--item-column title=name"):
        read_items(table, columns={"item_id": "asin", "title": "nam"})


def test_a_mapped_column_takes_the_place_of_one_that_has_our_name() -> None:
    table = pl.DataFrame({"asin": ["a"], "item_id": [9], "name": ["Tea"], "title": ["Dr"]})
    items = read_items(table, columns={"item_id": "asin", "title": "name"})
    assert items.rows(named=True) == [{"item_id": "a", "title": "Tea"}]
    swapped = pl.DataFrame({"item_id": [9], "category": ["Tea"], "title": ["drinks"]})
    items = read_items(swapped, columns={"title": "category", "category": "title"})
    assert items.select("category", "title").rows() == [("drinks", "Tea")]


def test_a_table_in_memory_may_have_our_names_and_a_file_may_not(tmp_path: Path) -> None:
    columns = {"item_id": "asin", "title": "name"}
    once = read_items(pl.DataFrame({"asin": ["a"], "name": ["Tea"]}), columns=columns)
    assert read_items(once, columns=columns).rows(named=True) == [{"item_id": "a", "title": "Tea"}]
    assert read_items(once.to_pandas(), columns=columns).equals(once)
    once.write_csv(tmp_path / "items.csv")
    with pytest.raises(DataError, match=r"no columns 'asin' \(as item_id\), 'name' \(as title\)"):
        read_items(tmp_path / "items.csv", columns=columns)


@pytest.mark.parametrize(
    ("genres", "category"),
    [
        (["Comedy|Drama", "War"], ["Comedy", "War"]),
        (["Science Fiction, Drama", "Film Noir"], ["Science Fiction", "Film Noir"]),
        (["Crime, Old|War", "War"], ["Crime, Old", "War"]),
        (["Animation Children's", " "], ["Animation", None]),
        ([["Drama", "War"], []], ["Drama", None]),
        ([None, "A|B"], [None, "A"]),
    ],
)
def test_the_first_genre_stands_in_for_a_category(genres: list[object], category: list[str | None]) -> None:
    items = read_items(pl.DataFrame({"item_id": [1, 2], "genres": genres}))
    assert items["category"].to_list() == category


def test_a_given_category_wins_over_genres() -> None:
    items = read_items(pl.DataFrame({"item_id": [1], "genres": ["War"], "category": ["Film"]}))
    assert items["category"].to_list() == ["Film"]


def test_repeated_ids_are_refused_with_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("item_id\n7\n8\n7\n7\n")
    with pytest.raises(
        DataError, match=r"items\.csv: item_id 7 occurs 3 times, first in line 2 and line 4; 1 ids repeat"
    ):
        read_items(path)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("item_id\n5\n")
    with pytest.raises(DataError, match=r"item_id 5 occurs 2 times"):
        read_items(str(tmp_path / "[ab].csv"))


@pytest.mark.parametrize("value", ["", "  "])
def test_a_missing_id_is_refused_with_its_row(value: str, tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text(f"item_id,title\n1,a\n{value},b\n")
    with pytest.raises(DataError, match=r"items\.csv, line 3, column 'item_id': item_id is missing\. Fix the row\.$"):
        read_items(path)


def test_no_rows_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("item_id,title\n")
    with pytest.raises(DataError, match=r"items\.csv: no rows"):
        read_items(path)


def test_several_files_with_other_columns_are_joined(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item_id,title\n1,Tea\n")
    (tmp_path / "b.csv").write_text("item_id,brand\nx,Best\n")
    assert read_items(tmp_path).select("item_id", "title", "brand").rows() == [("1", "Tea", None), ("x", None, "Best")]


def test_recbole_and_movielens_item_files(tmp_path: Path) -> None:
    (tmp_path / "x.item").write_text("item_id:token\tmovie_title:token_seq\n1\tToy Story\n")
    assert read_items(tmp_path / "x.item", columns={"title": "movie_title"})["title"].to_list() == ["Toy Story"]
    (tmp_path / "movies.dat").write_text("1::Toy Story (1995)::Animation|Comedy\n")
    assert read_items(tmp_path / "movies.dat").rows(named=True) == [
        {"item_id": 1, "title": "Toy Story (1995)", "genres": "Animation|Comedy", "category": "Animation"}
    ]


def test_a_table_made_by_hand_is_checked_too() -> None:
    with pytest.raises(DataError, match=r"mine, row 2: expected an integer or a text of .* as item_id, got 1\.5"):
        check_items(pl.DataFrame({"item_id": [1.0, 1.5]}), file="mine")


def test_columns_of_a_text_file_get_their_types_over_all_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item_id,price,ean,stock,since,zip\n1,2,0001,true,2024-01-31,12345\n")
    (tmp_path / "b.csv").write_text("item_id,price,ean,stock,since,zip\n2,2.5,9001,false,,01234\n")
    items = read_items(tmp_path).select("price", "ean", "stock", "since", "zip")
    assert items.dtypes == [pl.Float64, pl.String, pl.Boolean, pl.Date, pl.String]
    assert items["zip"].to_list() == ["12345", "01234"]


def test_a_type_that_a_file_declares_is_kept(tmp_path: Path) -> None:
    (tmp_path / "x.item").write_text("item_id:token\tyear:token\tprice:float\n1\t1995\t2.5\n")
    assert read_items(tmp_path / "x.item").select("year", "price").rows() == [("1995", 2.5)]
    table = pl.DataFrame({"item_id": [1], "year": ["1995"]})
    assert read_items(table)["year"].to_list() == ["1995"]
    table.write_parquet(tmp_path / "y.parquet")
    assert read_items(tmp_path / "y.parquet")["year"].to_list() == ["1995"]
