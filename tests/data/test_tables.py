import gzip
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zstandard

from beamtree.data.interactions import read_interactions
from beamtree.data.items import read_items
from beamtree.data.tables import find_files, read_tables
from beamtree.errors import DataError

ROWS = [("u1", "7", "10"), ("u2", "8", "11")]
FRAME = pl.DataFrame({"user": ["u1", "u2"], "item": ["7", "8"], "time": ["10", "11"]})
HEADERLESS = ("user", "item", "time")


def as_parquet(path: Path) -> bytes:
    FRAME.write_parquet(path)
    return path.read_bytes()


FORMATS: dict[str, bytes | Callable[[Path], bytes]] = {
    "a.csv": b"user,item,time\nu1,7,10\nu2,8,11\n",
    "b.csv": b"\xef\xbb\xbfuser;item;time\r\nu1;7;10\r\nu2;8;11\r\n",
    "c.txt": b'user|item|time\n"u1"|7|10\nu2|8|11',
    "d.tsv": b"user\titem\ttime\nu1\t7\t10\nu2\t8\t11\n",
    "e.ndjson": b'{"user":"u1","item":"7","time":"10"}\n\n{"time":"11","user":"u2","item":"8"}\n',
    "f.jsonl": b'{"user":"u1","item":"7","time":"10"}\n{"user":"u2","item":"8","time":"11"}',
    "g.inter": b"user:token\titem:token\ttime:float\nu1\t7\t10\nu2\t8\t11\n",
    "h.dat": b"u1::7::10\nu2::8::11\n",
    "i.parquet": as_parquet,
    "J.CSV": b"user,item,time\nu1,7,10\nu2,8,11\n",
}


def read(source: object, wanted: set[str] | None = None) -> pl.DataFrame:
    tables = read_tables(source, wanted=wanted, headerless=HEADERLESS)
    return pl.concat([table.frame for table in tables])


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_reads_alike_plain_and_compressed(name: str, compression: str, tmp_path: Path) -> None:
    made = FORMATS[name]
    content = made if isinstance(made, bytes) else made(tmp_path / "plain")
    packed = {"": content, ".gz": gzip.compress(content), ".zst": zstandard.compress(content)}[compression]
    path = tmp_path / f"{name}{compression}"
    path.write_bytes(packed)
    assert read(path).select(HEADERLESS).rows() == ROWS
    assert read(str(path), wanted={"item"}).to_dict(as_series=False) == {"item": ["7", "8"]}


@pytest.mark.parametrize(
    "table",
    [
        FRAME,
        FRAME.lazy(),
        pd.DataFrame({"user": ["u1", "u2"], "item": ["7", "8"], "time": ["10", "11"]}),
        pa.table({"user": ["u1", "u2"], "item": ["7", "8"], "time": ["10", "11"]}),
    ],
    ids=["polars", "lazy", "pandas", "arrow"],
)
def test_tables_in_memory_read_alike(table: object) -> None:
    assert read(table).rows() == ROWS


def test_anything_else_in_memory_is_refused() -> None:
    with pytest.raises(DataError, match=r"Expected a path or a Polars, pandas or Arrow table, got builtins\.int"):
        read(5)


def test_folders_and_globs_are_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name, user in (("b.csv", "2"), ("a.csv", "1"), ("deep/c.csv", "3"), ("_SUCCESS", "x"), ("note.md", "x")):
        (tmp_path / name).write_text(f"user\n{user}\n")
    assert read(tmp_path)["user"].to_list() == ["1", "2", "3"]
    assert read(str(tmp_path / "*.csv"))["user"].to_list() == ["1", "2"]
    assert [path.name for path in find_files(tmp_path / "b.csv")] == ["b.csv"]


def test_missing_paths_and_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv: no such file"):
        find_files(tmp_path / "nowhere.csv")
    for source in (tmp_path, tmp_path / "*.csv"):
        with pytest.raises(DataError, match="no table found there"):
            find_files(source)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.parquet", b"user_id,item_id\n1,2\n", "says Parquet, but its content is not Parquet"),
        ("log.parquet", b"", "says Parquet, but its content is empty"),
        ("log.csv", b"PAR1\x15\x04", "says csv text, but its content is Parquet"),
        ("log.csv", gzip.compress(b"user\n1\n"), "but its content is gzip"),
        ("log.tsv", b"PK\x03\x04rest", "but its content is zip"),
        ("log.csv", b"<!DOCTYPE html><html>Not found</html>", "an HTML or XML page"),
        ("log.csv", b'{"user_id": 1}\n', "but its content is JSON"),
        ("log.csv", b"user\x00\x01\x02", "but its content is binary"),
        ("log.ndjson", b"user_id,item_id\n1,2\n", "one JSON object per line, but its content is not JSON"),
        ("log.ndjson", b'[{"user_id": 1}]', "a JSON array"),
        ("log.csv.gz", b"user_id\n1\n", "its name says gzip, but it cannot be unpacked"),
        ("log.csv.gz", gzip.compress(b"user_id\n" * 100)[:-10], "its name says gzip, but it cannot be unpacked"),
        ("log.csv.zst", b"user_id\n1\n", "its name says zstd, but it cannot be unpacked"),
        ("log.csv.zst", zstandard.compress(b"user_id\n" * 100)[:-3], "it ends in the middle of a frame"),
        ("log.dat", b"1,2,3\n", "no '::' between fields"),
        ("log.xyz", b"1,2,3\n", "cannot tell its format from its name"),
        ("log.csv", b"user,title\n1,caf\xe9\n", "cannot be read as csv"),
    ],
)
def test_a_file_that_is_not_what_its_name_says(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user\n1\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"log\.csv: cannot be opened \(Permission denied\)"):
        read(path)


def test_truncated_parquet_is_called_damaged(tmp_path: Path) -> None:
    content = as_parquet(tmp_path / "whole.parquet")
    for kept in (len(content) - 1, len(content) // 2, 5):
        path = tmp_path / f"cut-{kept}.parquet"
        path.write_bytes(content[:kept])
        with pytest.raises(DataError, match=r"cannot be read as parquet .* damaged") as caught:
            read(path)
        assert path.name in str(caught.value)


def test_all_frames_of_a_compressed_file_are_read(tmp_path: Path) -> None:
    for suffix, compress in ((".gz", gzip.compress), (".zst", zstandard.compress)):
        path = tmp_path / f"log.csv{suffix}"
        path.write_bytes(compress(b"user\n1\n") + compress(b"2\n"))
        assert read(path)["user"].to_list() == ["1", "2"]


def test_latin_1_titles_of_movielens_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "movies.dat"
    path.write_bytes("1::Café: Olé::Drama|War\n".encode("latin-1"))
    assert read(path).rows() == [("1", "Café: Olé", "Drama|War")]


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_blanks_around_a_field_are_no_part_of_it(suffix: str, separator: str, tmp_path: Path) -> None:
    rows = [["user_id", " item_id", "timestamp "], [" 7", "12 ", " 5"], ["8", ' "a b" ', "6"], ["8", '" c"', "7"]]
    path = tmp_path / f"log.{suffix}"
    path.write_text("\n".join(separator.join(row) for row in rows) + "\n")
    log = read_interactions(path).frame
    assert log.rows()[:1] == [(7, "12", 5)]
    assert log["item_id"].to_list()[2] == "c"
    path.write_text(separator.join(["user_id", "item_id", "timestamp"]) + f"\n 7{separator}\u00a012 {separator}5\n")
    assert read_interactions(path).frame.rows() == [(7, 12, 5)], "integers stay integers"
    frame = pl.DataFrame({"user_id": [" 7"], "item_id": ["a "], "timestamp": [5]})
    assert read_interactions(frame).frame.rows() == [(" 7", "a ", 5)], "tables with types mean what they say"


@pytest.mark.parametrize(
    "header", ["user_id,item_id,user_id,timestamp", "user_id:token,item_id, user_id:float,timestamp"]
)
def test_a_column_that_is_there_twice_is_refused(header: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{header}\n1,2,3,4\n")
    with pytest.raises(DataError, match=r"has the column 'user_id' in the fields 1 and 3\. Rename or remove"):
        read_interactions(path)
    path.write_text("user_id,item_id,timestamp,note,note,,\n1,2,3,4,5,,\n")
    assert read_interactions(path).frame.rows() == [(1, 2, 3)], "columns that are not read may be there twice"
    with pytest.raises(DataError, match="'note' in the fields 4 and 5"):
        read_items(path)


def test_rows_with_too_many_fields_stop_or_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('user,item\n1,2\n3,"4,5"\n6,7,8\n9\n')
    with pytest.raises(DataError, match=r"log\.csv, line 4: expected 2 fields, got 3 in '6,7,8'"):
        read(path)
    table = next(read_tables(path, wanted=None, headerless=(), bad_rows="skip"))
    assert list(table.malformed) == [2]
    assert table.frame["item"].to_list() == ["2", "4,5", "7", None]


def test_lines_that_are_no_json_stop_or_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "log.ndjson"
    path.write_text('{"user": 1}\n{"user": \n[3]\n{"user": 4}\n')
    with pytest.raises(DataError, match=r"log\.ndjson, line 2: expected a JSON object, got '\{\"user\":'"):
        read(path)
    table = next(read_tables(path, wanted=None, headerless=(), bad_rows="skip"))
    assert list(table.malformed) == [1, 2]
    assert table.frame["user"].to_list() == [1, None, None, 4]


def test_rows_of_movielens_files_are_counted_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "ratings.dat"
    path.write_text("1::2::3\n4::5::6::7\n")
    with pytest.raises(DataError, match="line 2: expected 3 fields, got 4"):
        read(path)
