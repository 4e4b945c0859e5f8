"""Conditions on columns of the item table, as one flag per item."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from beamtree.serving.api_error import ApiError, shortened
from beamtree.serving.schemas import Condition
from beamtree.types import BoolArray


@dataclass(frozen=True)
class ItemConditions:
    """Conditions of a request, all of which must hold."""

    conditions: Sequence[Condition]

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for conditions that mean the same whatever their order."""
        return tuple(sorted(condition.model_dump_json(exclude_none=True) for condition in self.conditions))

    def mask(self, item_table: pl.DataFrame) -> BoolArray:
        """Which items meet all conditions: (items,). ApiError for an unknown column or a wrong type."""
        mask = np.ones(len(item_table), dtype=np.bool_)
        for condition in self.conditions:
            mask &= _evaluate(condition, item_table)
        return mask


def _evaluate(condition: Condition, item_table: pl.DataFrame) -> BoolArray:
    check_column(condition.column, item_table)
    column = _comparable_form(item_table[condition.column])
    if column.dtype.is_nested() and not isinstance(column.dtype, pl.List):
        raise ApiError(
            422, "wrong_type", f"Column {condition.column} holds {column.dtype}: no condition can be put on it."
        )
    return item_table.select(_expression(condition, column).fill_null(False)).to_series().to_numpy()


def _comparable_form(column: pl.Series) -> pl.Series:
    """Dates and times in ISO form and categories as texts, arrays as lists; all else as it is."""
    if isinstance(column.dtype, pl.Datetime):
        return column.dt.to_string("%Y-%m-%dT%H:%M:%S")
    if column.dtype.is_temporal() or column.dtype in (pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    return column.arr.to_list() if isinstance(column.dtype, pl.Array) else column


def check_column(name: str, item_table: pl.DataFrame) -> None:
    """422 for a column that the item table does not have."""
    if name not in item_table.columns:
        raise ApiError(
            422,
            "unknown_column",
            f"There is no item column {shortened(name)}; there are {', '.join(item_table.columns)}.",
            details=[name],
        )


def _expression(condition: Condition, column: pl.Series) -> pl.Expr:
    is_list = isinstance(column.dtype, pl.List)
    element_type = column.explode().dtype if is_list else column.dtype
    parts: list[pl.Expr] = []
    if condition.one_of is not None:
        values = _typed(condition.one_of, element_type, column=condition.column)
        parts.append(
            pl.lit(column).list.eval(pl.element().is_in(values.implode())).list.any()
            if is_list
            else _comparable(column, values).is_in(values.implode())
        )
    if condition.contains is not None:
        text = _typed([condition.contains], element_type, column=condition.column)
        parts.append(
            pl.lit(column).list.eval(pl.element().is_in(text.implode())).list.any()
            if is_list
            else pl.lit(column).str.contains(condition.contains, literal=True)
        )
    for bound, is_lower in ((condition.at_least, True), (condition.at_most, False)):
        if bound is None:
            continue
        if is_list or element_type == pl.Boolean:
            raise ApiError(
                422, "wrong_type", f"at_least and at_most need a column of numbers or texts, not {column.name}."
            )
        values = _typed([bound], element_type, column=condition.column)
        compared, limit = _comparable(column, values), pl.lit(values.item(0), dtype=values.dtype)
        parts.append(compared >= limit if is_lower else compared <= limit)
    return pl.all_horizontal(parts)


def _typed(values: Sequence[bool | int | float | str], dtype: pl.DataType, *, column: str) -> pl.Series:
    """The values in a type that compares with the column; 422 where they are of another kind."""
    if dtype == pl.Boolean:
        kind, fits = "true or false", all(isinstance(value, bool) for value in values)
        target: type[pl.DataType] = pl.Boolean
    elif dtype.is_numeric():
        kind = "numbers"
        fits = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        target = pl.Int64 if dtype.is_integer() and all(isinstance(value, int) for value in values) else pl.Float64
    else:
        kind, fits, target = "texts", all(isinstance(value, str) for value in values), pl.String
    if not fits:
        raise ApiError(422, "wrong_type", f"Column {column} holds {kind}; got {shortened(list(values))}.")
    return pl.Series(values, dtype=target)


def _comparable(column: pl.Series, values: pl.Series) -> pl.Expr:
    return pl.lit(column.cast(values.dtype, strict=False))
