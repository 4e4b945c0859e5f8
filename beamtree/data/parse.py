"""Columns of raw ids and of times, whatever type they arrive in, as one of two types each.

A value that cannot be parsed becomes null; the caller decides whether that is an error.
"""

from datetime import UTC, date, datetime
from typing import Final

import polars as pl

from beamtree.errors import DataError, SettingsError

NUMBER_KINDS: Final = "a number"
ID_CHARACTERS: Final = 512
"""The longest id that a request over HTTP can name."""
ID_KINDS: Final = f"an integer or a text of at most {ID_CHARACTERS} characters"
TIME_KINDS: Final = "an integer, a decimal number or an ISO date such as 2024-05-31T12:00:00Z"

_ISO_PATTERN: Final = (
    r"^\s*(?P<date>\d{4}-\d{2}-\d{2})(?:[T ](?P<clock>\d{2}:\d{2})(?::(?P<seconds>\d{2}(?:[.,]\d+)?))?)?"
    r"\s*(?:(?P<utc>[Zz]|UTC)|(?P<sign>[+-])(?P<hours>\d{2}):?(?P<minutes>\d{2})?)?\s*$"
)
_WHOLE: Final = ".0"
_SECONDS_PER_UNIT: Final = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e8, 1.0))


def parse_ids(column: pl.Series) -> pl.Series:
    """Raw ids as Int64 where every value is an integer in its usual spelling, else as String, unchanged.

    '007' is a text, so it comes back as '007'. Integers as a column of floats spells them, all with '.0', are integers.
    Blank texts, texts that are too long, and numbers with a fraction become null.
    A column of a type that holds no ids (booleans, dates, lists) becomes null throughout.
    """
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype.is_integer():
        return column.cast(pl.Int64, strict=False)
    if column.dtype.is_float() or column.dtype.is_decimal():
        whole = column.cast(pl.Int64, strict=False)
        return whole.set(whole.cast(pl.Float64) != column.cast(pl.Float64), None)
    if column.dtype != pl.String:
        return _all_null(column, pl.String)
    is_blank = column.str.strip_chars().str.len_bytes() == 0
    return _as_integers(column.set(is_blank | (column.str.len_chars() > ID_CHARACTERS), None))


def unify_ids(parts: list[pl.Series]) -> list[pl.Series]:
    """The id columns of several files in one type: Int64 where all are, else String."""
    if all(part.dtype == pl.Int64 for part in parts):
        return parts
    return [part.cast(pl.String) for part in parts]


def parse_times(column: pl.Series) -> pl.Series:
    """Times as Int64 or Float64 that can be compared; numbers stay as they are, dates become seconds since 1970 (UTC).

    A text column is read as integers, as decimal numbers or as ISO dates, whichever fits most of its values.
    """
    dtype = column.dtype
    if dtype.is_integer():
        return column.cast(pl.Int64, strict=False)
    if dtype.is_float() or dtype.is_decimal():
        numbers = column.cast(pl.Float64)
        return numbers.set(~numbers.is_finite(), None)
    if dtype == pl.Date or dtype == pl.Datetime:
        return _whole_if_possible(_seconds(column))
    if dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype != pl.String:
        return _all_null(column, pl.Int64)
    stripped = column.str.strip_chars()
    whole = stripped.cast(pl.Int64, strict=False)
    if whole.null_count() == column.null_count():
        return whole
    decimal = stripped.cast(pl.Float64, strict=False)
    decimal = decimal.set(~decimal.is_finite(), None)
    if decimal.null_count() == column.null_count():
        return decimal
    dates = parse_iso(column)
    return min((whole, decimal, dates), key=pl.Series.null_count)


def parse_ratings(column: pl.Series) -> pl.Series:
    """Ratings as Float64."""
    if column.dtype == pl.String:
        column = column.str.strip_chars()
    elif not column.dtype.is_numeric():
        return _all_null(column, pl.Float64)
    return column.cast(pl.Float64, strict=False).fill_nan(None)


def parse_moment(moment: str | float | date, *, name: str) -> tuple[float, bool]:
    """A bound in time as a number, and whether it was given as a date (then it is in seconds since 1970, UTC)."""
    if isinstance(moment, datetime):
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), True
    if isinstance(moment, date):
        return datetime(moment.year, moment.month, moment.day, tzinfo=UTC).timestamp(), True
    if isinstance(moment, int | float):
        return float(moment), False
    text = pl.Series([moment])
    parsed = parse_times(text)
    if parsed.null_count():
        raise SettingsError(f"{name} is {TIME_KINDS}, got {moment!r}.")
    number = text.str.strip_chars().cast(pl.Float64, strict=False)
    return float(parsed.item()), number.null_count() == 1


def seconds_per_unit(times: pl.Series) -> float | None:
    """How many seconds one unit of these times is, judged by their size: s, ms, us or ns since 1970.

    None where the times are too small to be dates, as in a log that only counts upwards.
    """
    largest = times.max()
    if not isinstance(largest, int | float):
        return None
    return next((seconds for threshold, seconds in _SECONDS_PER_UNIT if largest >= threshold), None)


def bound_in_units(moment: str | float | date, *, name: str, times: pl.Series) -> float:
    """A bound in the units of these times. DataError for a date where the times are no dates."""
    number, is_date = parse_moment(moment, name=name)
    if not is_date:
        return number
    unit = seconds_per_unit(times)
    if unit is None:
        raise DataError(
            f"{name}={moment} is a date, but the times of this log ({times.min()!r} .. {times.max()!r}) are no dates: "
            f"give {name} as a number on that scale."
        )
    return number / unit


def _all_null(column: pl.Series, dtype: type[pl.DataType]) -> pl.Series:
    return pl.repeat(None, len(column), dtype=dtype, eager=True).alias(column.name)


def _as_integers(texts: pl.Series) -> pl.Series:
    """The texts as integers if every one is the usual spelling of an integer, or every one of a whole float."""
    spelt = texts.str.strip_suffix(_WHOLE) if texts.str.ends_with(_WHOLE).all() else texts
    integers = spelt.cast(pl.Int64, strict=False)
    if integers.null_count() != texts.null_count() or integers.null_count() == len(texts):
        return texts
    return integers if (integers.cast(pl.String) == spelt).all() else texts


def parse_iso(texts: pl.Series) -> pl.Series:
    """Seconds since 1970 of ISO dates, with or without clock, fraction and zone (none means UTC)."""
    parts = texts.str.extract_groups(_ISO_PATTERN).struct.unnest()
    moment = pl.concat_str(
        pl.col("date"), pl.lit(" "), pl.col("clock").fill_null("00:00"), pl.lit(":00")
    ).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="us")
    seconds = pl.col("seconds").fill_null("0").str.replace(",", ".", literal=True).cast(pl.Float64)
    offset = pl.col("hours").cast(pl.Int64) * 3600 + pl.col("minutes").fill_null("0").cast(pl.Int64) * 60
    east = pl.when(pl.col("sign") == "-").then(-offset).otherwise(offset).fill_null(0)
    whole = moment.dt.epoch("s") - east
    parsed = parts.select(pl.when(seconds < 61).then(whole + seconds).alias(texts.name))
    return _whole_if_possible(parsed.to_series())


def _seconds(column: pl.Series) -> pl.Series:
    """Seconds since 1970 of a Date or Datetime column, Float64."""
    if column.dtype == pl.Date:
        return column.cast(pl.Int64).cast(pl.Float64) * 86_400.0
    assert isinstance(column.dtype, pl.Datetime)
    per_second = {"ms": 1e3, "us": 1e6, "ns": 1e9}[column.dtype.time_unit]
    return column.cast(pl.Int64).cast(pl.Float64) / per_second


def _whole_if_possible(seconds: pl.Series) -> pl.Series:
    """Int64 where no value has a fraction, else Float64."""
    whole = seconds.cast(pl.Int64, strict=False)
    return whole if (whole.cast(pl.Float64) == seconds).all() else seconds
