"""What is known of users and contexts when new rows come: new values in the columns and types of the fit."""

import polars as pl

from beamtree.data.columns import USER_ID
from beamtree.data.context import context_in_time
from beamtree.data.users import rows_of_users
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import DataError
from beamtree.types import Int32Array, Int64Array


def replaced_users(known: pl.DataFrame | None, given: pl.DataFrame | None, *, users: Vocabulary) -> pl.DataFrame | None:
    """One row for each user: as given, else as known, else null; None where the fit had no user table.

    DataError for columns that it did not have, values of another type, and where it had none at all.
    """
    if known is None:
        if given is None:
            return None
        raise DataError("The model was fitted without a user table, so it reads none now. Fit again with one.")
    if given is None:
        return rows_of_users(users, known)
    unknown = [name for name in given.columns if name not in known.columns]
    if unknown:
        raise DataError(
            f"The user table has a column that the model was not fitted with: {unknown[0]}. It knows "
            f"{', '.join(known.columns)}. Leave the others out, or fit again."
        )
    new = _in_types_of(known, given)
    old = known.join(new.select(USER_ID), on=USER_ID, how="anti", maintain_order="left")
    return rows_of_users(users, pl.concat([old, new], how="diagonal"))


def extended_context(
    known: pl.DataFrame | None, rows: pl.DataFrame, *, dense_user: Int32Array, order: Int64Array
) -> pl.DataFrame | None:
    """The contexts of known interactions and of new rows, in an order; None where the fit read none.

    rows: of a log, whose dense users these are; order: of the known ones and then the new ones by user and time.
    """
    if known is None:
        return None
    new = context_in_time(rows, dense_user=dense_user)
    given = pl.DataFrame({"": pl.zeros(rows.height, eager=True)}) if new is None else new
    present = given.select(name for name in known.columns if name in given.columns)
    missing = [pl.lit(None, dtype=known.schema[name]).alias(name) for name in known.columns if name not in present]
    both = pl.concat([known, _in_types_of(known, given.with_columns(missing)).select(known.columns)])
    return both[order]


def _in_types_of(known: pl.DataFrame, given: pl.DataFrame) -> pl.DataFrame:
    """Columns in the types that they had at the fit; DataError where a value has no such form."""
    columns = []
    for column in given.iter_columns():
        dtype = known.schema.get(column.name, column.dtype)
        cast = column.cast(dtype, strict=False)
        is_lost = cast.is_null() & column.is_not_null()
        if dtype.is_numeric() and column.dtype.is_numeric():
            is_lost |= (cast.cast(pl.Float64) != column.cast(pl.Float64)).fill_null(value=False)
        if is_lost.any():
            wrong = column.filter(is_lost).item(0)
            raise DataError(
                f"Expected the column {column.name} as {dtype}, as the model was fitted with it, got {wrong!r}. Give "
                "values of that type, or leave the column out."
            )
        columns.append(cast)
    return pl.DataFrame(columns)
