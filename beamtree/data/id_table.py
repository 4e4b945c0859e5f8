"""Read a table with one row per id, of items or of users: the id first, and any other column with its type."""

from collections.abc import Collection, Mapping
from pathlib import Path

import polars as pl

from beamtree.data.columns import Mapper, require_columns
from beamtree.data.infer import typed
from beamtree.data.parse import ID_KINDS, parse_ids, unify_ids
from beamtree.data.rejects import ParsedColumn, check_rows
from beamtree.data.tables import ROW_INDEX, Source, Table, read_tables
from beamtree.errors import DataError


def read_id_table(
    source: Source,
    *,
    id_column: str,
    columns: Mapping[str, str],
    mapper: Mapper,
    headerless: tuple[str, ...],
    texts: Collection[str] = (),
    may_lack: bool = False,
) -> tuple[pl.DataFrame, str]:
    """The rows of all files of a source, ids first and in one type, and what the source is called in messages.

    id_column: our name for the ids; columns: our names -> those of the file. Columns of a text file get the type that
    all their values have, see `infer`, except `texts`. A table in memory may have our names in place of those of the
    file, as one that was read before has. may_lack: mapped columns beside the ids may be missing.
    DataError for a missing column, an id that is missing or no id, an id that occurs twice in a file, or no rows.
    """
    is_file = isinstance(source, str | Path)
    parts: list[pl.DataFrame] = []
    files: list[str] = []
    has_type: set[str] = {id_column, *texts}
    for table in read_tables(source, wanted=None, headerless=headerless):
        files.append(table.file)
        if table.frame.height == 0:
            continue
        names = {id_column: id_column, **columns}
        if not is_file:
            names = {ours: ours if _is_ours(ours, theirs, table) else theirs for ours, theirs in names.items()}
        if may_lack:
            names = {ours: theirs for ours, theirs in names.items() if ours == id_column or theirs in table.columns}
        id_name = names[id_column]
        others = {theirs: ours for ours, theirs in names.items() if ours != id_column}
        require_columns(names, present=table.columns, file=table.file, mapper=mapper)
        ids, _ = check_rows(
            table.numbered().select(ROW_INDEX, id_name),
            columns=[ParsedColumn(id_name, id_column, parse_ids, ID_KINDS)],
            table=table,
            bad_rows="error",
            remedy="Fix the row.",
        )
        replaced = [ours for ours in (id_column, *others.values()) if ours not in others]
        renamed = table.frame.drop(id_name, *replaced, strict=False).rename(others)
        part = pl.concat([ids, renamed], how="horizontal")
        check_repeats(part[id_column], table=table)
        parts.append(part)
        has_type |= set(table.columns) - table.untyped
    origin = files[0] if len(files) == 1 else f"{source}"
    kind = id_column.removesuffix("_id")
    if not parts:
        raise DataError(
            f"{origin}: no rows. Expected {'an' if kind[0] in 'aeio' else 'a'} {kind} table with one {kind} per row."
        )
    unified = unify_ids([part[id_column] for part in parts])
    parts = [part.with_columns(column) for part, column in zip(parts, unified, strict=True)]
    joined = pl.concat(parts, how="diagonal_relaxed")
    return joined.with_columns(typed(joined[name]) for name in joined.columns if name not in has_type), origin


def _is_ours(ours: str, theirs: str, table: Table) -> bool:
    """Whether a column has our name and not the one that it was expected to have."""
    return ours in table.columns and theirs not in table.columns


def check_ids(table: pl.DataFrame, *, id_column: str, file: str, mapper: Mapper) -> pl.DataFrame:
    """The table with its ids as Int64 or String, in front; DataError where they repeat, are null, or are no ids."""
    require_columns({id_column: id_column}, present=table.columns, file=file, mapper=mapper)
    ids = parse_ids(table[id_column])
    if ids.null_count():
        row = int(ids.is_null().arg_true()[0])
        raise DataError(
            f"{file}, row {row + 1}: expected {ID_KINDS} as {id_column}, got {table[id_column][row]!r}. Fix it."
        )
    check_repeats(ids, table=Table(file, table.columns, table))
    return table.with_columns(ids.alias(id_column)).select(id_column, pl.exclude(id_column))


def check_repeats(ids: pl.Series, *, table: Table) -> None:
    """DataError where an id occurs more than once in a table."""
    repeated = ids.is_duplicated()
    if not repeated.any():
        return
    value = ids.filter(repeated).item(0)
    rows = (ids == value).arg_true()
    places = table.numbered()[ROW_INDEX].gather(rows[:2]).to_list()
    raise DataError(
        f"{table.file}: {ids.name} {value!r} occurs {len(rows)} times, first in {table.place(places[0])} and "
        f"{table.place(places[1])}; {ids.filter(repeated).n_unique():,} ids repeat. Keep one row per "
        f"{ids.name.removesuffix('_id')}."
    )
