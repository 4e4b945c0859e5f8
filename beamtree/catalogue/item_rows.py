"""Rows of the item table for new items: the columns and types that the model was fitted with, or a refusal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from beamtree.data.columns import ITEM_ID
from beamtree.data.items import check_items, read_items
from beamtree.data.tables import Source
from beamtree.errors import DataError

SHOWN_VALUES = 3
SHOWN_COLUMNS = 5
SHOWN_CHARACTERS = 80


def read_new_items(source: Source, *, like: pl.DataFrame, columns: Mapping[str, str] | None = None) -> pl.DataFrame:
    """A table of new items from any file or table, in the form of the item table `like` of a model; see `new_rows`.

    columns: beamtree's name -> the name in the file, as when the model was fitted. In a file without types, integers in
    a column that was fitted as text are texts.
    """
    table = read_items(source, columns=columns, may_lack_columns=True)
    if isinstance(source, str | Path):
        texts = [
            name
            for name, dtype in table.schema.items()
            if dtype.is_integer() and name != ITEM_ID and like.schema.get(name) == pl.String
        ]
        table = table.with_columns(pl.col(texts).cast(pl.String))
    return new_rows(table, like=like)


def new_rows(table: pl.DataFrame, *, like: pl.DataFrame) -> pl.DataFrame:
    """The rows of a table in the columns and types of the item table `like`; columns that it lacks are null.

    DataError for columns that the model was not fitted with, for values of another type, for vectors of another size,
    and for ids that repeat, are missing, or are texts where those of the model are integers.
    """
    table = check_items(table, file="the table of new items")
    unknown = [name for name in table.columns if name not in like.columns]
    if unknown:
        more = f" and {len(unknown) - SHOWN_COLUMNS:,} more" if len(unknown) > SHOWN_COLUMNS else ""
        named = ", ".join(name[:SHOWN_CHARACTERS] for name in unknown[:SHOWN_COLUMNS])
        raise DataError(
            f"The new items have columns that the model was not fitted with: {named}{more}. It knows "
            f"{', '.join(like.columns)}. Leave the others out, or fit again with an item table that has them."
        )
    columns = [
        _of_type(table[name], dtype) if name in table.columns else pl.Series(name, [None] * len(table), dtype=dtype)
        for name, dtype in like.schema.items()
    ]
    for column in columns:
        _check_size(column, like=like[column.name])
    return pl.DataFrame(columns)


def rows_of_values(items: Sequence[Mapping[str, Any]], *, like: pl.DataFrame) -> pl.DataFrame:
    """A table of items that are given one by one, as values by column; see `new_rows`. Dates may be ISO texts."""
    names = dict.fromkeys(name for item in items for name in item)
    return pl.DataFrame(
        [
            _column(name, [item.get(name) for item in items], like.schema[name])
            if name in like.columns
            else pl.Series(name, [None] * len(items))  # refused by its name, whatever it holds
            for name in names
        ]
    )


def _column(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    """Values as they come, in the type of the column where that is meant: numbers, lists, dates as texts."""
    kinds = {type(value) for value in values if value is not None}
    if dtype == pl.String and name != ITEM_ID and not kinds <= {str}:
        raise _wrong_type(name, dtype, got=f"values such as {_first(values)}")
    try:
        if kinds <= {int, float}:
            return pl.Series(name, values, dtype=pl.Float64 if float in kinds else pl.Int64)
        if kinds == {list}:
            return pl.Series(name, values, dtype=dtype if dtype.is_nested() else None, strict=True)
        column = pl.Series(name, values, strict=True)
        if dtype.is_temporal() and column.dtype == pl.String:
            column = column.str.to_datetime(time_unit="us", strict=True).cast(dtype, strict=True)
        return column
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as problem:
        raise _wrong_type(name, dtype, got=f"values such as {_first(values)}") from problem


def _first(values: list[Any]) -> str:
    return repr(next(value for value in values if value is not None))[:SHOWN_CHARACTERS]


def _of_type(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """The same values in the type that the column had at the fit; DataError where that would change what they say."""
    if column.dtype == dtype:
        return column
    if column.null_count() == len(column):
        return pl.Series(column.name, [None] * len(column), dtype=dtype)
    if column.name == ITEM_ID and dtype == pl.String and column.dtype.is_integer():
        return column.cast(pl.String)
    if _is_one_kind(column.dtype, dtype):
        try:
            found = column.cast(dtype, strict=True)
        except pl.exceptions.PolarsError:
            found = None
        if found is not None and (not dtype.is_numeric() or found.cast(pl.Float64).equals(column.cast(pl.Float64))):
            return found
    shown = ", ".join(repr(value)[:SHOWN_CHARACTERS] for value in column.drop_nulls().head(SHOWN_VALUES).to_list())
    raise _wrong_type(column.name, dtype, got=f"{column.dtype} such as {shown}")


def _check_size(column: pl.Series, *, like: pl.Series) -> None:
    """DataError for vectors of another size than those of the fit, where these have one."""
    if not isinstance(column.dtype, pl.List) or not column.dtype.inner.is_float():
        return
    known, given = (one.drop_nulls().list.len().unique() for one in (like, column))
    if len(known) == 1 and not given.is_in(known.implode()).all():
        wrong = given.filter(~given.is_in(known.implode())).item(0)
        raise DataError(
            f"Expected vectors of {known.item()} numbers in the column {column.name}, as when the model was fitted, "
            f"got {wrong}. Make them with the same model of texts or images."
        )


def _wrong_type(name: str, dtype: pl.DataType, *, got: str) -> DataError:
    remedy = "Give values of that type" + ("." if name == ITEM_ID else ", or leave the column out.")
    return DataError(f"Expected the column {name} as {dtype}, as the model was fitted with it, got {got}. {remedy}")


def _is_one_kind(given: pl.DataType, wanted: pl.DataType) -> bool:
    """Whether values of one type can be meant as values of the other: numbers, texts, dates, lists of such."""
    if isinstance(given, pl.List | pl.Array) and isinstance(wanted, pl.List | pl.Array):
        inner, wanted_inner = given.inner, wanted.inner
        return isinstance(inner, pl.Null) or inner == wanted_inner or _is_one_kind(inner, wanted_inner)  # type: ignore[arg-type]
    texts = (pl.String, pl.Categorical, pl.Enum)
    return (
        (given.is_numeric() and wanted.is_numeric())
        or (given in texts and wanted in texts)
        or (given.is_temporal() and wanted.is_temporal())
    )
