"""New rows of a log behind those that a model has learned from."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from beamtree.data.columns import ITEM_ID, TIMESTAMP, USER_ID, WEIGHT
from beamtree.data.context import context_in_time
from beamtree.data.dataset import Dataset
from beamtree.data.interactions import InteractionLog
from beamtree.data.row_weights import decayed, none_if_equal, time_decay
from beamtree.data.sequences import Sequences
from beamtree.data.split import CLEAN_FIRST_TARGET, HeldOut, Spans, Split
from beamtree.data.users import rows_of_users
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import DataError
from beamtree.training.randomness import numpy_generator
from beamtree.types import Float32Array, Int32Array, Int64Array
from beamtree.updating.state import LearnedLog

HELD_OUT_SHARE, FEWEST_HELD_OUT, MOST_HELD_OUT = 0.1, 100, 2000
"""Of the users with new rows, so many show whether an update is better than the model before it; of few, half."""


@dataclass(frozen=True, eq=False)
class ExtendedLog:
    """A log with new rows: for each user the known ones first.

    known_end: int64 (users,), where the new rows of each user begin in the flat sequences. skipped: rows that were not
    newer than what is known.
    """

    dataset: Dataset
    known_end: Int64Array
    skipped: int

    @property
    def num_new(self) -> int:
        """New rows."""
        return int((self.dataset.sequences.offsets[1:] - self.known_end).sum())


def newer_rows(log: InteractionLog, known: LearnedLog, *, row_order: bool) -> tuple[pl.DataFrame, int]:
    """Rows after the newest one that is known, and how many others there are.

    row_order: the log has no times; all its rows are new. DataError where no row is new.
    """
    frame, newest = log.frame, known.newest
    if newest is None:
        return frame, 0
    if row_order:
        return frame.with_columns(pl.col(TIMESTAMP) + newest + 1), 0
    rows = frame.filter(pl.col(TIMESTAMP) > newest)
    if rows.height == 0:
        latest = frame[TIMESTAMP].to_numpy().max()
        raise DataError(
            f"Expected rows after {newest}, the newest time that the model has learned from; the latest of these "
            f"{frame.height:,} rows is at {latest}. Give a newer log, with times in the same unit."
        )
    return rows, frame.height - rows.height


def extend_log(
    known: LearnedLog,
    rows: pl.DataFrame,
    *,
    item_table: pl.DataFrame,
    skipped: int,
    half_life_days: float | None = None,
    user_table: pl.DataFrame | None = None,
) -> ExtendedLog:
    """Known sequences with new rows behind them; unknown users are appended.

    rows: user_id, item_id, timestamp and maybe weight, all of known items. item_table: a row for each item, in dense
    order. half_life_days: as in `prepare_dataset`; what is known has aged since it was learned. user_table: rows that
    replace what is known of these users.
    """
    items = Vocabulary(item_table[ITEM_ID])
    ids = ids_like(known.users.ids.alias(USER_ID), rows[USER_ID])
    unknown = ids.filter(known.users.encode(ids) < 0).unique(maintain_order=True)
    users = Vocabulary(pl.concat([known.users.ids, unknown.rename("id")]))
    ordered = pl.DataFrame(
        {
            USER_ID: users.encode(ids),
            ITEM_ID: items.encode(rows[ITEM_ID].cast(items.ids.dtype)),
            TIMESTAMP: rows[TIMESTAMP],
            WEIGHT: rows[WEIGHT]
            if WEIGHT in rows.columns
            else pl.repeat(1.0, rows.height, dtype=pl.Float32, eager=True),
        }
    ).sort(USER_ID, TIMESTAMP, maintain_order=True)
    known_lengths = np.concatenate([known.sequences.lengths, np.zeros(len(unknown), dtype=np.int64)])
    lengths = known_lengths + np.bincount(ordered[USER_ID].to_numpy(), minlength=len(users))
    owners = np.concatenate([np.repeat(np.arange(len(users)), known_lengths), ordered[USER_ID].to_numpy()])
    order = np.argsort(owners, kind="stable")
    flat = np.concatenate([known.sequences.items, ordered[ITEM_ID].to_numpy()])[order].astype(np.int32)
    times = None
    if known.timestamps is not None:
        new_times = ordered[TIMESTAMP].to_numpy().astype(known.timestamps.dtype)
        times = np.concatenate([known.timestamps, new_times])[order]
    weights = none_if_equal(_weights(known, ordered, half_life_days=half_life_days)[order])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    dataset = Dataset(
        users,
        items,
        Sequences(flat, offsets, weights),
        item_table,
        times,
        user_table=replaced_users(known.user_table, user_table, users=users),
        context=extended_context(known.context, rows, dense_user=users.encode(ids), order=order),
    )
    return ExtendedLog(dataset, offsets[:-1] + known_lengths, skipped)


def ids_like(known: pl.Series, ids: pl.Series) -> pl.Series:
    """Ids in the type of known ones; DataError, which names the first, for those that have no such form."""
    found = ids.cast(known.dtype, strict=False)
    if found.null_count():
        wrong = ids.filter(found.is_null()).item(0)
        kind = known.name.removesuffix("_id")
        raise DataError(
            f"Expected {kind} ids like {known.item(0)!r}, as the model knows them, got {wrong!r}. Spell them as in the "
            "log of the fit, or fit again."
        )
    return found


def _weights(known: LearnedLog, rows: pl.DataFrame, *, half_life_days: float | None) -> Float32Array:
    """What the known interactions and the new rows count, one after another, as of the newest of them."""
    before, new = known.sequences.weights, rows[WEIGHT].to_numpy()
    if before is None:
        before = np.ones(len(known.sequences.items), dtype=np.float32)
    if half_life_days is None or known.newest is None:
        return np.concatenate([before, new])
    times = rows[TIMESTAMP].to_numpy()
    moments = np.append(times, known.newest)
    decay = time_decay(moments, newest=moments.max().item(), half_life_days=half_life_days)
    return np.concatenate([decayed(before, np.full(len(before), decay[-1])), decayed(new, decay[:-1])])


def hold_out_newest(extended: ExtendedLog, *, exclude_seen: bool, seed: int) -> Split:
    """Hold out the new rows of some users who were known before; everything else is learned from.

    exclude_seen: only users count who met something new to them.
    """
    offsets, known_end = extended.dataset.sequences.offsets, extended.known_end
    asked = np.flatnonzero((_num_labels(extended, exclude_seen=exclude_seen) > 0) & (known_end > offsets[:-1]))
    enough = max(HELD_OUT_SHARE * len(asked), min(FEWEST_HELD_OUT, len(asked) / 2))
    number = min(MOST_HELD_OUT, int(np.ceil(enough)))
    chosen = np.sort(numpy_generator(seed, "newest").permutation(asked)[:number]).astype(np.int32)
    ends = offsets[1:].copy()
    ends[chosen] = known_end[chosen]
    users = np.arange(len(known_end), dtype=np.int32)
    nobody = np.empty(0, dtype=np.int64)
    return Split(
        Spans(users, offsets[:-1], ends),
        HeldOut(chosen, offsets[chosen], known_end[chosen], known_end[chosen], offsets[chosen + 1]),
        HeldOut(nobody.astype(np.int32), nobody, nobody, nobody, nobody),
        first_target=CLEAN_FIRST_TARGET,
        description=f"the new rows of {number:,} of {len(asked):,} users who were known before are held out",
    )


def _num_labels(extended: ExtendedLog, *, exclude_seen: bool) -> Int64Array:
    """How many new rows of each user (users,) could be foreseen."""
    sequences, num_items = extended.dataset.sequences, len(extended.dataset.items)
    users = np.repeat(np.arange(len(sequences)), sequences.lengths)
    is_later = np.arange(len(users)) >= extended.known_end[users]
    is_new = is_later.copy()
    if sequences.weights is not None:
        is_new &= sequences.weights > 0.0
    if exclude_seen:
        is_concerned = (sequences.offsets[1:] > extended.known_end)[users] & ~is_later
        keys = users * num_items + sequences.items
        is_new[is_new] = ~np.isin(keys[is_new], keys[is_concerned])
    return np.bincount(users[is_new], minlength=len(sequences))


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
