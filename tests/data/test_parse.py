from datetime import UTC, date, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamtree.data.parse import (
    bound_in_units,
    parse_ids,
    parse_moment,
    parse_ratings,
    parse_times,
    seconds_per_unit,
    unify_ids,
)
from beamtree.errors import DataError, SettingsError


@pytest.mark.parametrize(
    ("column", "dtype", "expected"),
    [
        (pl.Series(["1", "-20"]), pl.Int64, [1, -20]),
        (pl.Series(["1", "007"]), pl.String, ["1", "007"]),
        (pl.Series(["1", "u2"]), pl.String, ["1", "u2"]),
        (pl.Series(["1", " ", None]), pl.Int64, [1, None, None]),
        (pl.Series(["1.0", "-20.0", None]), pl.Int64, [1, -20, None]),
        (pl.Series(["1.0", "2"]), pl.String, ["1.0", "2"]),
        (pl.Series(["1.0", "2.5"]), pl.String, ["1.0", "2.5"]),
        (pl.Series(["1.0", "007.0"]), pl.String, ["1.0", "007.0"]),
        (pl.Series(["1.0.0", "2.0.0"]), pl.String, ["1.0.0", "2.0.0"]),
        (pl.Series(["99999999999999999999"]), pl.String, ["99999999999999999999"]),
        (pl.Series([1, 2], dtype=pl.UInt8), pl.Int64, [1, 2]),
        (pl.Series([2**63], dtype=pl.UInt64), pl.Int64, [None]),
        (pl.Series([1.0, 1.5, float("nan"), None]), pl.Int64, [1, None, None, None]),
        (pl.Series(["a", "b"], dtype=pl.Categorical), pl.String, ["a", "b"]),
        (pl.Series([True]), pl.String, [None]),
        (pl.Series([None, None]), pl.String, [None, None]),
        (pl.Series([[1]]), pl.String, [None]),
    ],
)
def test_ids_become_integers_or_stay_texts(column: pl.Series, dtype: pl.DataType, expected: list[object]) -> None:
    parsed = parse_ids(column)
    assert parsed.dtype == dtype
    assert parsed.to_list() == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_written_as_text_come_back_as_they_were(values: list[int]) -> None:
    parsed = parse_ids(pl.Series([str(value) for value in values]))
    assert parsed.dtype == pl.Int64
    assert parsed.to_list() == values


@given(st.lists(st.text(min_size=1).filter(lambda text: text.strip() != ""), min_size=1))
def test_texts_come_back_in_every_character(values: list[str]) -> None:
    parsed = parse_ids(pl.Series([*values, "not-a-number"]))
    assert parsed.to_list() == [*values, "not-a-number"]


def test_files_with_different_kinds_of_ids_agree_on_text() -> None:
    parts = unify_ids([pl.Series([1, 2]), pl.Series(["a"])])
    assert [part.to_list() for part in parts] == [["1", "2"], ["a"]]


@pytest.mark.parametrize(
    ("column", "dtype", "expected"),
    [
        (pl.Series([5, 6], dtype=pl.Int32), pl.Int64, [5, 6]),
        (pl.Series([1.5, float("inf")]), pl.Float64, [1.5, None]),
        (pl.Series(["5", " 6 "]), pl.Int64, [5, 6]),
        (pl.Series(["5", "6.25"]), pl.Float64, [5.0, 6.25]),
        (pl.Series(["8.8125e+08"]), pl.Float64, [881250000.0]),
        (pl.Series(["1970-01-02", "1970-01-01T00:00:01Z"]), pl.Int64, [86400, 1]),
        (pl.Series(["1970-01-01 01:00:00+01:00", "1970-01-01 00:00:00.5"]), pl.Float64, [0.0, 0.5]),
        (pl.Series(["1970-01-01T00:30-0030"]), pl.Int64, [3600]),
        (pl.Series(["1970-01-01", "yesterday", "1970-13-01"]), pl.Int64, [0, None, None]),
        (pl.Series(["5", "6", "soon"]), pl.Int64, [5, 6, None]),
        (pl.Series([date(1970, 1, 3)]), pl.Int64, [172800]),
        (pl.Series([datetime(1970, 1, 1, 0, 0, 2)]), pl.Int64, [2]),
        (pl.Series([datetime(1970, 1, 1, 0, 0, 2, 500000)]), pl.Float64, [2.5]),
        (pl.Series([True]), pl.Int64, [None]),
    ],
)
def test_times_become_comparable_numbers(column: pl.Series, dtype: pl.DataType, expected: list[object]) -> None:
    parsed = parse_times(column)
    assert parsed.dtype == dtype
    assert parsed.to_list() == expected


@given(st.lists(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), min_size=1))
def test_iso_texts_are_read_as_the_standard_library_reads_them(moments: list[datetime]) -> None:
    whole = [moment.replace(microsecond=0) for moment in moments]
    parsed = parse_times(pl.Series([moment.isoformat() for moment in whole]))
    assert parsed.to_list() == [int(moment.replace(tzinfo=UTC).timestamp()) for moment in whole]


def test_ratings_that_are_no_numbers_become_null() -> None:
    assert parse_ratings(pl.Series(["4.5", "good", None])).to_list() == [4.5, None, None]
    assert parse_ratings(pl.Series([3])).to_list() == [3.0]
    assert parse_ratings(pl.Series([True])).to_list() == [None]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (12, (12.0, False)),
        ("12.5", (12.5, False)),
        ("1970-01-02", (86400.0, True)),
        (date(1970, 1, 2), (86400.0, True)),
        (datetime(1970, 1, 1, 0, 1), (60.0, True)),
    ],
)
def test_a_moment_is_a_number_or_a_date(moment: object, expected: tuple[float, bool]) -> None:
    assert parse_moment(moment, name="since") == expected  # type: ignore[arg-type]


def test_a_moment_that_is_neither_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"since is .* got 'soon'"):
        parse_moment("soon", name="since")


@pytest.mark.parametrize(("factor", "unit"), [(1, 1.0), (10**3, 1e-3), (10**6, 1e-6), (10**9, 1e-9)])
def test_dates_are_compared_in_the_unit_of_the_log(factor: int, unit: float) -> None:
    times = pl.Series([1_500_000_000 * factor])
    assert seconds_per_unit(times) == unit
    assert bound_in_units("2017-07-14T02:40:00Z", name="since", times=times) == pytest.approx(1_500_000_000 * factor)


def test_a_date_cannot_bound_a_log_that_only_counts() -> None:
    with pytest.raises(DataError, match=r"until=2020-01-01 is a date, but .* \(0 \.\. 7\) are no dates"):
        bound_in_units("2020-01-01", name="until", times=pl.Series([0, 7]))
    assert bound_in_units(5, name="until", times=pl.Series([0, 7])) == 5
