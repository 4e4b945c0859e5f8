"""Conditions on columns of the item table, as a mask over the items."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from beamtree.serving.api_error import ApiError, shortened
from beamtree.serving.schemas.recommend_body import Condition
from beamtree.types import BoolArray

NANOSECONDS_LEFT_OUT = "%Y-%m-%dT%H:%M:%S"

Value = bool | int | float | str


@dataclass(frozen=True)
class ItemConditions:
    """Conditions of a request, all of which must hold."""

    conditions: Sequence[Condition]

    @property
    def key(self) -> bytes:
        """32 bytes, equal for the same conditions in any order."""
        digests = [
            hashlib.sha256(condition.model_dump_json(exclude_none=True).encode()).digest()
            for condition in self.conditions
        ]
        return hashlib.sha256(b"".join(sorted(digests))).digest()

    def mask(self, item_table: pl.DataFrame) -> BoolArray:
        """Which items meet all conditions: (items,). ApiError for an unknown column or a wrong type."""
        mask = np.ones(len(item_table), dtype=np.bool_)
        for condition in self.conditions:
            check_column(condition.column, item_table)
            column = item_table[condition.column]
            try:
                mask &= _matches(condition, column)
            except (PolarsError, PanicException) as error:
                raise _unusable(condition.column, column.dtype) from error
        return mask


def check_column(name: str, item_table: pl.DataFrame) -> None:
    """422 for a column that the item table does not have."""
    if name not in item_table.columns:
        raise ApiError(
            422,
            "unknown_column",
            f"There is no item column {shortened(name)}; there are {', '.join(item_table.columns)}.",
            details=[name],
        )


def _matches(condition: Condition, column: pl.Series) -> BoolArray:
    """Which rows of a column meet a condition, (rows,). A list meets it if one of its elements does."""
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if not isinstance(column.dtype, pl.List):
        return _holds(condition, column, within_list=False)
    lengths = column.list.len().fill_null(0)
    elements = column.filter(lengths > 0).explode()
    rows = np.repeat(np.arange(len(column)), lengths.to_numpy())
    holds = np.zeros(len(column), dtype=np.bool_)
    holds[rows[_holds(condition, elements, within_list=True)]] = True
    return holds


def _holds(condition: Condition, elements: pl.Series, *, within_list: bool) -> BoolArray:
    """Which of the elements meet a condition, (elements,); missing ones and NaN never do."""
    if within_list and (condition.at_least is not None or condition.at_most is not None):
        raise _unordered(condition.column)
    if elements.dtype == pl.Null:
        return np.zeros(len(elements), dtype=np.bool_)
    holds = np.ones(len(elements), dtype=np.bool_)
    if condition.one_of is not None:
        holds &= _is_in(elements, condition.one_of, column=condition.column)
    if condition.contains is not None and within_list:
        holds &= _is_in(elements, [condition.contains], column=condition.column)
    elif condition.contains is not None:
        texts, _ = _comparable(elements, [condition.contains], column=condition.column)
        holds &= _flags(texts.str.contains(condition.contains, literal=True))
    for bound, is_lower in ((condition.at_least, True), (condition.at_most, False)):
        if bound is None:
            continue
        if elements.dtype == pl.Boolean:
            raise _unordered(condition.column)
        compared, limit = _comparable(elements, [bound], column=condition.column)
        holds &= _flags(compared >= limit if is_lower else compared <= limit)
    return holds


def _is_in(elements: pl.Series, values: Sequence[Value], *, column: str) -> BoolArray:
    compared, wanted = _comparable(elements, values, column=column)
    return _flags(compared.is_in(wanted.implode()))


def _flags(matches: pl.Series) -> BoolArray:
    return matches.fill_null(False).to_numpy()


def _comparable(elements: pl.Series, values: Sequence[Value], *, column: str) -> tuple[pl.Series, pl.Series]:
    """Elements and values in one type in which they compare; 422 where they are of different kinds.

    Dates, times and categories are compared as texts, dates and times in ISO form.
    """
    dtype = elements.dtype
    target: type[pl.DataType]
    if dtype == pl.Boolean:
        kind, fits, target = "true or false", all(isinstance(value, bool) for value in values), pl.Boolean
    elif dtype.is_numeric():
        kind = "numbers"
        fits = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        has_fractions = not dtype.is_integer() or any(isinstance(value, float) for value in values)
        whole = pl.Int128 if dtype in (pl.UInt64, pl.Int128) else pl.Int64
        target = pl.Float64 if has_fractions else whole
    elif dtype in (pl.String, pl.Categorical, pl.Enum, pl.Date, pl.Time) or isinstance(dtype, pl.Datetime):
        kind, fits, target = "texts", all(isinstance(value, str) for value in values), pl.String
    else:
        raise _unusable(column, dtype)
    if not fits:
        raise ApiError(422, "wrong_type", f"Column {column} holds {kind}; got {shortened(list(values))}.")
    if isinstance(dtype, pl.Datetime):
        elements = elements.dt.to_string(NANOSECONDS_LEFT_OUT)
    compared = elements.cast(target, strict=False)
    if target == pl.Float64:
        compared = compared.fill_nan(None)
    return compared, pl.Series(values, dtype=target, strict=False)


def _unordered(column: str) -> ApiError:
    return ApiError(
        422,
        "wrong_type",
        f"at_least and at_most need a column of numbers, texts or dates, and {column} is none. Use one_of.",
    )


def _unusable(column: str, dtype: pl.DataType) -> ApiError:
    return ApiError(
        422,
        "wrong_type",
        f"No such condition can be put on column {column}, which holds {dtype}. Choose a column of numbers, texts, "
        "dates, flags, or lists of these.",
    )
