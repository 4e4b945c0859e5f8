"""Read what is known about items: item_id, category, title, and any other column."""

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
    require_columns,
)
from beamtree.data.infer import typed
from beamtree.data.parse import ID_KINDS, parse_ids, unify_ids
from beamtree.data.rejects import ParsedColumn, check_rows
from beamtree.data.tables import ROW_INDEX, Source, Table, read_tables
from beamtree.errors import DataError

MOVIELENS_MOVIE_COLUMNS: Final = (ITEM_ID, TITLE, GENRES)
TEXT_COLUMNS: Final = (CATEGORY, TITLE, GENRES)
"""Texts whatever their values look like."""


def read_items(source: Source, *, columns: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Read an item table from any file or table that `tables` knows: one row per item, item_id first.

    columns: beamtree's name -> the name in the file, for item_id, category and title. Other columns are carried along;
    those of a text file get the type that all their values have, see `infer`. Where there is no category but a column
    genres, the first genre becomes the category; genres are separated by '|', else by ',', else by blanks. Category,
    title and genres are texts.
    DataError for a missing column, an id that is missing or no id, an id that occurs twice, or no rows.
    """
    mapping = check_mapping(columns, allowed=MAPPABLE_ITEM_COLUMNS)
    names = {ITEM_ID: ITEM_ID, **mapping}
    id_name = names[ITEM_ID]
    others = {theirs: ours for ours, theirs in mapping.items() if ours != ITEM_ID}
    parts: list[pl.DataFrame] = []
    files: list[str] = []
    has_type: set[str] = {ITEM_ID, *TEXT_COLUMNS}
    for table in read_tables(source, wanted=None, headerless=MOVIELENS_MOVIE_COLUMNS):
        files.append(table.file)
        if table.frame.height == 0:
            continue
        require_columns(names, present=table.columns, file=table.file, mapper=ITEM_MAPPER)
        ids, _ = check_rows(
            table.numbered().select(ROW_INDEX, id_name),
            columns=[ParsedColumn(id_name, ITEM_ID, parse_ids, ID_KINDS)],
            table=table,
            bad_rows="error",
            remedy="Fix the row.",
        )
        replaced = [ours for ours in (ITEM_ID, *others.values()) if ours not in others]
        renamed = table.frame.drop(id_name, *replaced, strict=False).rename(others)
        part = pl.concat([ids, renamed], how="horizontal")
        _check_repeats(part[ITEM_ID], table=table)
        parts.append(part)
        has_type |= set(table.columns) - table.untyped
    origin = files[0] if len(files) == 1 else f"{source}"
    if not parts:
        raise DataError(f"{origin}: no rows. Expected an item table with one item per row.")
    unified = unify_ids([part[ITEM_ID] for part in parts])
    parts = [part.with_columns(column) for part, column in zip(parts, unified, strict=True)]
    joined = pl.concat(parts, how="diagonal_relaxed")
    return check_items(
        joined.with_columns(typed(joined[name]) for name in joined.columns if name not in has_type), file=origin
    )


def check_items(table: pl.DataFrame, *, file: str) -> pl.DataFrame:
    """An item table in beamtree's form: unique item_id (Int64 or String) first, category and title as texts if any.

    DataError where ids repeat, are null, or are no ids.
    """
    require_columns({ITEM_ID: ITEM_ID}, present=table.columns, file=file, mapper=ITEM_MAPPER)
    ids = parse_ids(table[ITEM_ID])
    if ids.null_count():
        row = int(ids.is_null().arg_true()[0])
        raise DataError(f"{file}, row {row + 1}: expected {ID_KINDS} as item_id, got {table[ITEM_ID][row]!r}. Fix it.")
    _check_repeats(ids, table=Table(file, table.columns, table))
    table = table.with_columns(ids.alias(ITEM_ID))
    if CATEGORY not in table.columns and GENRES in table.columns:
        table = table.with_columns(_first_genre(table[GENRES]).alias(CATEGORY))
    texts = [pl.col(name).cast(pl.String) for name in (CATEGORY, TITLE) if name in table.columns]
    return table.with_columns(texts).select(ITEM_ID, pl.exclude(ITEM_ID))


def _first_genre(genres: pl.Series) -> pl.Series:
    if genres.dtype == pl.List:
        return genres.list.first().cast(pl.String)
    texts = genres.cast(pl.String).str.strip_chars()
    separator = next((mark for mark in "|," if texts.str.contains(mark, literal=True).any()), " ")
    first = texts.str.split(separator).list.first().str.strip_chars()
    return first.set(first == "", None)


def _check_repeats(ids: pl.Series, *, table: Table) -> None:
    repeated = ids.is_duplicated()
    if not repeated.any():
        return
    value = ids.filter(repeated).item(0)
    rows = (ids == value).arg_true()
    places = table.numbered()[ROW_INDEX].gather(rows[:2]).to_list()
    raise DataError(
        f"{table.file}: item_id {value!r} occurs {len(rows)} times, first in {table.place(places[0])} and "
        f"{table.place(places[1])}; {ids.filter(repeated).n_unique():,} ids repeat. Keep one row per item."
    )
