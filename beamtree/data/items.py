"""Read an item table: item_id, category, title, and any other column."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from beamtree.data.columns import (
    CATEGORY,
    GENRES,
    ITEM_ID,
    ITEM_MAPPER,
    MAPPABLE_ITEM_COLUMNS,
    TITLE,
    check_mapping,
)
from beamtree.data.id_table import check_ids, read_id_table
from beamtree.data.tables import Source

MOVIELENS_MOVIE_COLUMNS: Final = (ITEM_ID, TITLE, GENRES)
TEXT_COLUMNS: Final = (CATEGORY, TITLE, GENRES)
"""Texts whatever their values look like."""


def read_items(
    source: Source, *, columns: Mapping[str, str] | None = None, may_lack_columns: bool = False
) -> pl.DataFrame:
    """Read an item table from any file or table that `tables` knows: one row per item, item_id first.

    columns: beamtree's name -> the name in the file, for item_id, category and title; may_lack_columns: category and
    title may be missing all the same. Other columns are carried along; those of a text file get the type that all their
    values have, see `infer`. Where there is no category but a column genres, the first genre becomes the category;
    genres are separated by '|', else by ',', else by blanks. Category, title and genres are texts.
    DataError for a missing column, an id that is missing or no id, an id that occurs twice, or no rows.
    """
    mapping = check_mapping(columns, allowed=MAPPABLE_ITEM_COLUMNS)
    table, origin = read_id_table(
        source,
        id_column=ITEM_ID,
        columns=mapping,
        mapper=ITEM_MAPPER,
        headerless=MOVIELENS_MOVIE_COLUMNS,
        texts=TEXT_COLUMNS,
        may_lack=may_lack_columns,
    )
    return check_items(table, file=origin)


def check_items(table: pl.DataFrame, *, file: str) -> pl.DataFrame:
    """An item table in beamtree's form: unique item_id (Int64 or String) first, category and title as texts if any.

    DataError where ids repeat, are null, or are no ids.
    """
    table = check_ids(table, id_column=ITEM_ID, file=file, mapper=ITEM_MAPPER)
    if CATEGORY not in table.columns and GENRES in table.columns:
        table = table.with_columns(_first_genre(table[GENRES]).alias(CATEGORY))
    texts = [pl.col(name).cast(pl.String) for name in (CATEGORY, TITLE) if name in table.columns]
    return table.with_columns(texts)


def _first_genre(genres: pl.Series) -> pl.Series:
    if genres.dtype == pl.List:
        return genres.list.first().cast(pl.String)
    texts = genres.cast(pl.String).str.strip_chars()
    separator = next((mark for mark in "|," if texts.str.contains(mark, literal=True).any()), " ")
    first = texts.str.split(separator).list.first().str.strip_chars()
    return first.set(first == "", None)
