"""Read a user table: user_id, and any other column."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from beamtree.data.columns import USER_ID, USER_MAPPER
from beamtree.data.id_table import check_ids, read_id_table
from beamtree.data.parse import parse_times
from beamtree.data.tables import Source
from beamtree.data.vocabulary import Vocabulary

HEADERLESS: Final = (USER_ID, "gender", "age", "occupation", "zip_code")
"""Columns of MovieLens' '::' file of users."""


def read_users(source: Source, *, columns: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Read a user table from any file or table that `tables` knows: one row per user, user_id first.

    columns: {"user_id": its name in the table}; other names of a log's columns mean nothing here. All other columns are
    carried along; those of a text file get the type that all their values have, see `infer`, and dates become seconds
    since 1970. DataError for a missing column, an id that is missing or no id, an id that occurs twice, or no rows.
    """
    mapping = {ours: theirs for ours, theirs in (columns or {}).items() if ours == USER_ID}
    table, origin = read_id_table(source, id_column=USER_ID, columns=mapping, mapper=USER_MAPPER, headerless=HEADERLESS)
    dates = [name for name, dtype in table.schema.items() if dtype in (pl.Date, pl.Datetime)]
    table = table.with_columns(parse_times(table[name]).cast(pl.Float64) for name in dates)
    return check_ids(table, id_column=USER_ID, file=origin, mapper=USER_MAPPER)


def rows_of_users(users: Vocabulary, table: pl.DataFrame) -> pl.DataFrame:
    """One row of a user table for each dense user, in dense order; null where the table does not have the user."""
    ids = pl.DataFrame({USER_ID: users.ids})
    matching = table.with_columns(pl.col(USER_ID).cast(users.ids.dtype, strict=False)).drop_nulls(USER_ID)
    return ids.join(matching, on=USER_ID, how="left", maintain_order="left")
