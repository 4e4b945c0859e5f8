"""Type inference for text columns: integers, decimal numbers, booleans, dates, timestamps; else text.

A column gets a type only where every value fits it and none would lose what it says: numbers with leading zeros are
identifiers and stay text, and so do integers of more digits than a number can hold.
"""

from typing import Final

import polars as pl

from beamtree.data.parse import parse_iso

_INTEGER: Final = r"^-?(?:0|[1-9][0-9]*)$"
_DECIMAL: Final = r"^-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-][0-9]+)?$"
_BOOLEAN: Final = r"^(?i:true|false)$"
_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}"
MICROSECONDS: Final = 1_000_000


def typed(texts: pl.Series) -> pl.Series:
    """A text column as Int64, Float64, Boolean, Date or Datetime (UTC, without a zone) if all values are; else as is.

    Blank texts are missing values, null in any type. A column without any value stays text.
    """
    values = texts.set(texts.str.strip_chars() == "", None)
    present = values.drop_nulls()
    if present.is_empty():
        return values
    for parse in (_integers, _decimals, _booleans, _dates, _moments):
        parsed = parse(values, present)
        if parsed is not None and parsed.null_count() == values.null_count():
            return parsed
    return values


def _all_match(present: pl.Series, pattern: str) -> bool:
    return bool(present.str.contains(pattern).all())


def _integers(values: pl.Series, present: pl.Series) -> pl.Series | None:
    return values.cast(pl.Int64, strict=False) if _all_match(present, _INTEGER) else None


def _decimals(values: pl.Series, present: pl.Series) -> pl.Series | None:
    """Only where one has a fraction or an exponent: integers that are too long for Int64 stay what they are."""
    if _all_match(present, _INTEGER) or not _all_match(present, _DECIMAL):
        return None
    numbers = values.cast(pl.Float64, strict=False)
    return numbers.set(~numbers.is_finite(), None)


def _booleans(values: pl.Series, present: pl.Series) -> pl.Series | None:
    return values.str.to_lowercase() == "true" if _all_match(present, _BOOLEAN) else None


def _dates(values: pl.Series, present: pl.Series) -> pl.Series | None:
    return values.str.to_date("%Y-%m-%d", strict=False) if _all_match(present, _DATE) else None


def _moments(values: pl.Series, present: pl.Series) -> pl.Series | None:
    if not _all_match(present, _MOMENT):
        return None
    seconds = parse_iso(values)
    return (seconds * MICROSECONDS).round().cast(pl.Int64).cast(pl.Datetime("us")).alias(values.name)
