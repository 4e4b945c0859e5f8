import csv
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from beamtree.data.interactions import InteractionLog, read_interactions
from beamtree.data.parse import ID_CHARACTERS
from beamtree.data.read_report import ReadReport
from beamtree.errors import DataError, SettingsError
from beamtree.serving.schemas.events import EventsBody


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_three_columns_come_back_in_file_order_whatever_else_there_is(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "rating,timestamp,item_id,user_id\n5,20,007,b\n4,10,8,a\n")
    log = read_interactions(path)
    assert log.frame.columns == ["user_id", "item_id", "timestamp"]
    assert log.frame.rows() == [("b", "007", 20), ("a", "8", 10)]
    assert log.report == ReadReport(files=(str(path),), rows_read=2)


def test_columns_can_be_mapped() -> None:
    table = pl.DataFrame({"uid": [1], "asin": ["x"], "when": ["1970-01-01T00:00:05"]})
    log = read_interactions(table, columns={"user_id": "uid", "item_id": "asin", "timestamp": "when"})
    assert log.frame.rows() == [(1, "x", 5)]


def test_a_missing_column_names_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "userId,item_id,timestamp\n1,2,3\n")
    with pytest.raises(
        DataError,
        match=r"no column .*read_interactions\(.*columns=\{'user_id': 'userId'\}\), or --column user_id=userId",
    ):
        read_interactions(path)
    with pytest.raises(DataError, match=r"no column 'wen' \(as timestamp\).*--column timestamp=NAME"):
        read_interactions(pl.DataFrame({"user_id": [1], "item_id": [2]}), columns={"timestamp": "wen"})
    with pytest.raises(SettingsError, match="got 'uid'"):
        read_interactions(path, columns={"uid": "user_id"})


def test_rows_without_times_are_read_in_their_order_when_asked_to(tmp_path: Path) -> None:
    """Rows count through both files; repeats stay, bad and filtered rows leave a gap."""
    write(tmp_path / "a.csv", "user_id,item_id,kind\n1,7,buy\n1,7,buy\n2,8,view\n")
    write(tmp_path / "b.csv", "user_id,item_id,kind\n2,,buy\n1,9,buy\n")
    with pytest.raises(DataError, match=r"no column 'timestamp'.*row_order=True .* or --row-order"):
        read_interactions(tmp_path)
    log = read_interactions(
        tmp_path,
        row_order=True,
        event_type={"kind": ["buy"]},
        bad_rows="skip",
        rejects_file=tmp_path / "rejects.txt",
    )
    assert log.frame.rows() == [(1, 7, 0), (1, 7, 1), (1, 9, 4)]
    assert (log.report.rows_read, log.report.rows_filtered, log.report.rows_rejected) == (5, 1, 1)


def test_row_order_takes_the_place_of_times_that_are_there() -> None:
    table = pl.DataFrame({"user_id": [1, 1], "item_id": [7, 8], "timestamp": [9, 5]})
    assert read_interactions(table, row_order=True).frame["timestamp"].to_list() == [0, 1]
    with pytest.raises(SettingsError, match="since and until are about timestamps"):
        read_interactions(table, row_order=True, since=3)


def test_no_rows_is_an_error(tmp_path: Path) -> None:
    for name, text in (("header.csv", "user_id,item_id,timestamp\n"), ("empty.csv", ""), ("blank.ndjson", "\n\n")):
        with pytest.raises(DataError, match=f"{name}: no rows"):
            read_interactions(write(tmp_path / name, text))


BAD_ROWS = "user_id,item_id,timestamp\n1,10,100\n2,,101\n3,30,soon\n ,40,103\n5,50,104\n"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("1,10,100\n2,,101\n", 3, "column 'item_id': item_id is missing"),
        (",10,100\n", 2, "column 'user_id': user_id is missing"),
        ("1,10,100\n2,20,\n", 3, "column 'timestamp': timestamp is missing"),
        ("1,10,100\n2,20,101\n3,30,soon\n", 4, "expected an integer, a decimal number or an ISO date .*, got 'soon'"),
        ("1,10\n", 2, "timestamp is missing"),
    ],
)
def test_a_bad_row_is_named_with_its_value_and_a_remedy(text: str, line: int, problem: str, tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "user_id,item_id,timestamp\n" + text)
    with pytest.raises(DataError, match=rf"log\.csv, line {line}, .*{problem}.*bad_rows='skip' \(--bad-rows=skip\)"):
        read_interactions(path)


def test_an_id_that_is_no_id_is_refused() -> None:
    frame = pl.DataFrame({"user_id": [1.0, 2.5], "item_id": [1, 2], "timestamp": [1, 2]})
    with pytest.raises(
        DataError, match=r"the table, row 2, column 'user_id': expected an integer or a text of .*, got 2\.5"
    ):
        read_interactions(frame)
    frame = pl.DataFrame({"user_id": [1], "item_id": [[1, 2]], "timestamp": [1]})
    with pytest.raises(DataError, match="row 1, column 'item_id': expected an integer or a text"):
        read_interactions(frame)


def test_an_id_that_no_request_could_name_is_refused(tmp_path: Path) -> None:
    longest, longer = "é" * ID_CHARACTERS, "é" * (ID_CHARACTERS + 1)
    log = "user_id,item_id,timestamp\nu,{},1\nu,b,2\n"
    assert read_interactions(write(tmp_path / "log.csv", log.format(longest))).frame["item_id"][0] == longest
    path = write(tmp_path / "log.csv", log.format(longer))
    with pytest.raises(
        DataError, match=r"line 2, column 'item_id': expected .* at most 512 .* got 'é{80}\.\.\.'"
    ) as refused:
        read_interactions(path)
    assert len(str(refused.value)) < 500
    assert read_interactions(path, bad_rows="skip", rejects_file=tmp_path / "bad.csv").frame["item_id"].to_list() == [
        "b"
    ]
    asked = {"events": [{"user_id": longest, "item_id": longest}]}
    EventsBody.model_validate(asked)
    with pytest.raises(ValidationError):
        EventsBody.model_validate({"events": [{"user_id": longer, "item_id": longest}]})


def test_other_bad_rows_are_counted_in_the_message() -> None:
    frame = pl.DataFrame({"user_id": [True] * 1_000, "item_id": [1] * 1_000, "timestamp": [1] * 1_000})
    with pytest.raises(DataError, match=r"row 1, column 'user_id': .* got true\. 999 more rows are bad too"):
        read_interactions(frame)


def test_skipped_rows_are_counted_and_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", BAD_ROWS)
    rejects = tmp_path / "bad.csv"
    log = read_interactions(path, bad_rows="skip", rejects_file=rejects)
    assert log.frame.rows() == [(1, 10, 100), (5, 50, 104)]
    assert log.report.rows_rejected == 3
    assert log.report.rejects_file == str(rejects)
    with rejects.open() as file:
        listed = list(csv.DictReader(file))
    assert [(entry["line"], entry["row"], entry["column"], entry["value"]) for entry in listed] == [
        ("3", "2", "item_id", ""),
        ("4", "3", "timestamp", "soon"),
        ("5", "4", "user_id", ""),
    ]
    assert {entry["file"] for entry in listed} == {str(path)}


def test_rows_that_are_no_rows_are_skipped_with_the_others(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "user_id,item_id,timestamp\n1,2,3,4\n5,6,7\n8,9,never\n")
    log = read_interactions(path, bad_rows="skip", rejects_file=tmp_path / "bad.csv")
    assert log.frame.rows() == [(5, 6, 7)]
    assert log.report.rows_rejected == 2


def test_a_skipped_row_does_not_decide_the_type_of_ids(tmp_path: Path) -> None:
    text = "user_id,item_id,timestamp\n1,2,3\nuser_id,item_id,timestamp\n4,5,6\n"
    log = read_interactions(write(tmp_path / "log.csv", text), bad_rows="skip", rejects_file=tmp_path / "bad.csv")
    assert log.frame.rows() == [(1, 2, 3), (4, 5, 6)]


def test_the_rejects_file_is_named_after_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = read_interactions(write(tmp_path / "log.v1.csv", BAD_ROWS), bad_rows="skip")
    assert log.report.rejects_file == "log.rejects.csv"
    assert (tmp_path / "log.rejects.csv").read_text().startswith("file,line,row,column,value,reason\n")


def test_a_log_of_bad_rows_only_is_an_error_even_when_skipping(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "user_id,item_id,timestamp\n1,,3\n")
    with pytest.raises(DataError, match="no rows left of 1; 1 were bad and 0 were filtered out"):
        read_interactions(path, bad_rows="skip", rejects_file=tmp_path / "bad.csv")


def test_bad_rows_is_error_or_skip() -> None:
    with pytest.raises(SettingsError, match="'ignore'"):
        read_interactions(pl.DataFrame(), bad_rows="ignore")  # type: ignore[arg-type]


def test_exact_repeats_go_and_repeats_at_other_times_stay() -> None:
    rows = [(1, 7, 5), (1, 7, 6), (1, 7, 5), (2, 7, 5), (1, 7, 5)]
    log = read_interactions(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))
    assert log.frame.rows() == [(1, 7, 5), (1, 7, 6), (2, 7, 5)]
    assert log.report.rows_repeated == 2


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=40))
def test_dropping_repeats_keeps_the_first_of_each(rows: list[tuple[int, str, int]]) -> None:
    log = read_interactions(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))
    assert log.frame.rows() == list(dict.fromkeys(rows))


EVENTS = pl.DataFrame(
    {
        "user_id": [1, 1, 2, 2],
        "item_id": [10, None, 30, 40],
        "timestamp": [1_500_000_000, 1_500_000_100, 1_500_000_200, 1_500_000_300],
        "rating": [5.0, 4.0, None, 2.0],
        "kind": ["buy", "search", "view", "buy"],
    }
)


def times(log: InteractionLog) -> list[int]:
    return [time - 1_500_000_000 for time in log.frame["timestamp"]]


def test_events_are_chosen_before_rows_are_checked() -> None:
    log = read_interactions(EVENTS, event_type={"kind": ["buy", "view"]})
    assert times(log) == [0, 200, 300]
    assert log.report.rows_filtered == 1
    with pytest.raises(DataError, match="row 2, column 'item_id'"):
        read_interactions(EVENTS)
    with pytest.raises(DataError, match=r"no column 'kid' to filter events by; it has .*kind.*--event-type"):
        read_interactions(EVENTS, event_type={"kid": ["buy"]})


def test_event_values_may_be_numbers_or_a_single_text() -> None:
    assert times(read_interactions(EVENTS, event_type={"kind": "buy"})) == [0, 300]
    frame = EVENTS.with_columns(pl.Series("kind", [1, 4, 3, 1]))
    assert times(read_interactions(frame, event_type={"kind": [1]})) == [0, 300]


def test_ratings_below_the_bound_go_and_missing_ones_are_bad_rows() -> None:
    buys = {"kind": ["buy"]}
    assert times(read_interactions(EVENTS, event_type=buys, min_rating=3)) == [0]
    assert times(read_interactions(EVENTS, event_type=buys, min_rating=2)) == [0, 300]
    with pytest.raises(DataError, match="row 3, column 'rating': rating is missing"):
        read_interactions(EVENTS, event_type={"kind": ["buy", "view"]}, min_rating=3)


def test_since_is_included_and_until_is_not() -> None:
    log = EVENTS.filter(pl.col("item_id").is_not_null())
    assert times(read_interactions(log, since=1_500_000_200)) == [200, 300]
    assert times(read_interactions(log, until=1_500_000_200)) == [0]
    assert times(read_interactions(log, since="2017-07-14 02:40:01", until="2017-07-14T02:45:00Z")) == [200]
    with pytest.raises(DataError, match="no rows left of 3; 0 were bad and 3 were filtered out"):
        read_interactions(log, since=date(2020, 1, 1))


def test_files_of_different_kinds_become_one_log(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "user_id,item_id,timestamp\n1,10,5\n")
    write(tmp_path / "b.ndjson", '{"user_id": "x", "item_id": 11, "timestamp": 5.5}\n')
    write(tmp_path / "c.inter", "user_id:token\titem_id:token\ttimestamp:float\n1\t12\t7\n")
    log = read_interactions(tmp_path)
    assert log.frame.rows() == [("1", 10, 5.0), ("x", 11, 5.5), ("1", 12, 7.0)]
    assert len(log.report.files) == 3
    assert "3 rows read from 3 files" in log.report.lines()


def test_movielens_ratings_need_no_header(tmp_path: Path) -> None:
    log = read_interactions(
        write(tmp_path / "ratings.dat", "1::122::5::838985046\n1::185::4.5::838983525\n"), min_rating=5
    )
    assert log.frame.rows() == [(1, 122, 838985046)]


def test_a_log_cannot_be_made_around_the_checks() -> None:
    good = {"user_id": [1], "item_id": ["a"], "timestamp": [1]}
    assert len(InteractionLog(pl.DataFrame(good))) == 1
    for change in ({"user_id": [None]}, {"item_id": [1.5]}, {"timestamp": ["x"]}):
        with pytest.raises(DataError, match=r"read_interactions"):
            InteractionLog(pl.DataFrame({**good, **change}, schema_overrides={"user_id": pl.Int64}))
    with pytest.raises(DataError, match="has the columns"):
        InteractionLog(pl.DataFrame({"user_id": [1]}))
    with pytest.raises(DataError, match="at least one interaction"):
        InteractionLog(pl.DataFrame(good).clear())


def test_many_text_ids_survive_parquet(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(0, 500, (2_000, 2))
    frame = pl.DataFrame(
        {
            "user_id": [f"u{number:04}" for number in numbers[:, 0]],
            "item_id": [f"{number:04}" for number in numbers[:, 1]],
            "timestamp": range(2_000),
        }
    )
    frame.write_parquet(tmp_path / "log.parquet")
    assert read_interactions(tmp_path / "log.parquet").frame.equals(frame)


def test_all_missing_columns_are_named_with_what_they_may_be_called() -> None:
    """Never a column that something else is read from: item_id is spelled almost like user_id."""
    table = pl.DataFrame({"customerId": ["a"], "SKU": ["b"], "created_at": [1], "note": ["c"]})
    with pytest.raises(DataError) as refused:
        read_interactions(table)
    message = str(refused.value)
    assert "no columns 'user_id', 'item_id', 'timestamp'; it has customerId, SKU, created_at, note." in message
    assert "--column user_id=customerId --column item_id=SKU --column timestamp=created_at." in message
    with pytest.raises(DataError, match=r"no column 'item_id'.*--column item_id=NAME\.$"):
        read_interactions(pl.DataFrame({"user_id": [1], "timestamp": [1], "remark": ["x"]}))


def test_a_remembered_name_gives_way_to_our_own(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "user_id,item_id,timestamp\n1,2,3\n")
    with pytest.raises(DataError, match=r"no column 'uid' \(as user_id\).*--column user_id=user_id"):
        read_interactions(path, columns={"user_id": "uid"})


def test_empty_lines_are_no_rows_and_lines_are_counted_with_them(tmp_path: Path) -> None:
    text = '\nuser_id,item_id,timestamp\n\n1,"two\nlines",3\n\n4,5,soon\n6,7,8,9\n\n'
    path = write(tmp_path / "log.csv", text)
    with pytest.raises(DataError, match=r"log\.csv, line 8: expected 3 fields, got 4"):
        read_interactions(path)
    log = read_interactions(path, bad_rows="skip", rejects_file=tmp_path / "bad.csv")
    assert log.frame.rows() == [(1, "two\nlines", 3)]
    assert log.report.rows_read == 3
    assert pl.read_csv(tmp_path / "bad.csv")["line"].to_list() == [7, 8]
    path = write(tmp_path / "log.csv", "user_id,item_id,timestamp\n\n1,2,3\n\n4,,5\n")
    with pytest.raises(DataError, match=r"log\.csv, line 5, column 'item_id'"):
        read_interactions(path)


def test_rows_in_order_keep_their_order_across_files_with_empty_lines(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "user_id,item_id\n\n\n\nu,1\n")
    write(tmp_path / "b.csv", "user_id,item_id\nu,2\nu,3\n")
    assert read_interactions(tmp_path, row_order=True).frame.sort("timestamp")["item_id"].to_list() == [1, 2, 3]


def test_lines_of_json_are_counted_with_empty_ones(tmp_path: Path) -> None:
    rows = ['{"user_id":1,"item_id":2,"timestamp":3}', "", '{"user_id":1,"item_id":null,"timestamp":4}']
    with pytest.raises(DataError, match=r"log\.ndjson, line 3, column 'item_id': item_id is missing"):
        read_interactions(write(tmp_path / "log.ndjson", "\n".join(rows)))
