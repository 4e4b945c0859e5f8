"""Allow lists of users: a table with one row per user, and the list of items as a column."""

from typing import Final

import polars as pl

from beamtree.data.columns import USER_ID
from beamtree.data.raw_ids import Ids, id_list
from beamtree.data.tables import Source, read_tables
from beamtree.data.vocabulary import Id
from beamtree.errors import DataError, InputError
from beamtree.retrieval.request import Allow, ItemFilter

ALLOW: Final = "allow"
"""The column of the lists."""


def read_allow_lists(source: Source) -> pl.DataFrame:
    """The columns user_id and allow (a list of item ids) of a table; DataError where it has others, or a user twice."""
    parts = []
    for table in read_tables(source, wanted={USER_ID, ALLOW}, headerless=()):
        if not {USER_ID, ALLOW} <= set(table.frame.columns) or not isinstance(table.frame.schema[ALLOW], pl.List):
            raise DataError(
                f"{table.file}: expected the columns {USER_ID} and {ALLOW}, a list of item ids, got "
                f"{', '.join(f'{name} ({dtype})' for name, dtype in table.frame.schema.items()) or 'neither'}. Write "
                "it as Parquet or NDJSON, one row for each user."
            )
        parts.append(table.frame.select(USER_ID, ALLOW))
    lists = pl.concat(parts, how="vertical_relaxed")
    if lists[USER_ID].is_duplicated().any():
        twice = lists.filter(pl.col(USER_ID).is_duplicated())[USER_ID][0]
        raise DataError(f"{source}: expected one row for each user, got several for {twice!r}. Join their lists.")
    return lists


def by_user(lists: pl.DataFrame) -> dict[Id, list[Id]]:
    """The lists by user; a list that is null allows nothing."""
    return {user: [] if allowed is None else allowed for user, allowed in lists.iter_rows()}


def within(allow: ItemFilter | None, ids: Ids) -> ItemFilter:
    """The items of a user's list that also pass the common filter."""
    if allow is None:
        return ids
    if isinstance(allow, pl.Expr):
        return Allow(ids=ids, where=allow)
    if isinstance(allow, Allow):
        if allow.ids is None:
            return Allow(ids=ids, where=allow.where)
        both = set(id_list(allow.ids, what="allow"))
        return Allow(ids=[each for each in id_list(ids, what=ALLOW) if each in both], where=allow.where)
    if isinstance(allow, str | bytes):
        raise InputError(f"allow: expected a list of ids or a condition, got {allow!r}.")
    everybody = set(id_list(allow, what="allow"))
    return [each for each in id_list(ids, what=ALLOW) if each in everybody]
