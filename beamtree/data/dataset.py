"""A log prepared for training: dense ids, flat sequences sorted by time, one row per item."""

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Final, Literal, Self

import numpy as np
import polars as pl

from beamtree.data.columns import CATEGORY, ITEM_ID, TIMESTAMP, TITLE, USER_ID, WEIGHT
from beamtree.data.context import context_in_time
from beamtree.data.interactions import InteractionLog
from beamtree.data.items import check_items
from beamtree.data.read_report import ReadReport
from beamtree.data.request_features import NO_FEATURES, DatasetFeatures, RequestFeatures
from beamtree.data.row_weights import decayed, none_if_equal, time_decay
from beamtree.data.sequences import Sequences
from beamtree.data.users import rows_of_users
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import DataError, SettingsError
from beamtree.types import AnyArray, Float64Array, Int32Array, Int64Array

Catalogue = Literal["log", "items"]
Times = Int64Array | Float64Array
DEFAULT_MIN_INTERACTIONS: Final = 2


@dataclass(frozen=True)
class PrepareReport:
    """Counts of a prepared log: rows read, rows kept, and rows dropped while reading.

    mismatch: a sentence where an item table was given that describes no item of the log.
    """

    reading: ReadReport
    min_interactions: int
    users_in: int
    users_kept: int
    items_in: int
    items_kept: int
    interactions_in: int
    interactions_kept: int
    items_without_metadata: int
    mismatch: str | None = None

    def lines(self) -> list[str]:
        """The report as sentences to print or to log."""
        return [
            *self.reading.lines(),
            f"{self.users_kept:,} of {self.users_in:,} users have at least {self.min_interactions} interactions",
            f"{self.interactions_kept:,} of {self.interactions_in:,} interactions kept",
            f"{self.items_kept:,} items in the catalogue ({self.items_in:,} in the log), "
            f"{self.items_without_metadata:,} of them without metadata",
            *([] if self.mismatch is None else [self.mismatch]),
        ]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Dense ids, sequences and items, in agreement with each other.

    users, items: Vocabulary, both in ascending order of raw id; sequences: one per user, oldest interaction first.
    item_table: one row per dense item, in dense order; item_id first, then category and title (null where unknown),
    then whatever else the item table had. timestamps: int64 or float64 (N,), aligned with sequences.items, or None.
    report: what preparing dropped, where it was prepared from a log. user_table: one row per dense user, user_id first,
    null where nothing is known, or None; context: the context columns of the log, N rows aligned with sequences.items,
    or None. features: what is read of both, see `reading`.
    """

    users: Vocabulary
    items: Vocabulary
    sequences: Sequences
    item_table: pl.DataFrame
    timestamps: Times | None = None
    report: PrepareReport | None = None
    user_table: pl.DataFrame | None = None
    context: pl.DataFrame | None = None
    features: DatasetFeatures = NO_FEATURES

    def __post_init__(self) -> None:
        if len(self.sequences) != len(self.users):
            raise DataError(f"Expected one sequence for each of {len(self.users)} users, got {len(self.sequences)}.")
        if self.item_table.height != len(self.items) or not self.item_table[ITEM_ID].equals(self.items.ids):
            raise DataError("Expected the item table to have one row per item, in the order of the items.")
        if self.timestamps is not None and self.timestamps.shape != self.sequences.items.shape:
            raise DataError(
                f"Expected one time per interaction, {self.sequences.items.shape}, got {self.timestamps.shape}."
            )
        users, context = self.user_table, self.context
        if users is not None and (users.height != len(self.users) or not users[USER_ID].equals(self.users.ids)):
            raise DataError("Expected the user table to have one row per user, in the order of the users.")
        if context is not None and context.height != len(self.sequences.items):
            raise DataError(f"Expected one context per interaction, {len(self.sequences.items)}, got {context.height}.")

    def __repr__(self) -> str:
        interactions = len(self.sequences.items)
        return f"Dataset({len(self.users):,} users, {len(self.items):,} items, {interactions:,} interactions)"

    def reading(self, read: RequestFeatures) -> Self:
        """The same data with the features of its users and contexts, as far as they are read.

        DataError where a column cannot be read as what it was when the schema was made.
        """
        return replace(self, features=DatasetFeatures.of(self, read))

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over types, vocabularies, the flat arrays, times and weights: equal data, equal fingerprint."""
        digest = sha256()
        for vocabulary in (self.users, self.items):
            digest.update(f"{vocabulary.ids.dtype} {len(vocabulary)};".encode())
            if vocabulary.holds_integers:
                digest.update(vocabulary.ids.to_numpy().tobytes())
            else:
                lengths = vocabulary.ids.str.len_bytes().cast(pl.Int64)
                digest.update(lengths.to_numpy().tobytes())
                digest.update("".join(vocabulary.ids).encode())
        arrays: list[AnyArray] = [self.sequences.offsets, self.sequences.items]
        optional = [array for array in (self.timestamps, self.sequences.weights) if array is not None]
        for array in [*arrays, *optional]:
            digest.update(f"{array.dtype.str} {len(array)};".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


def prepare_dataset(
    log: InteractionLog,
    *,
    items: pl.DataFrame | None = None,
    min_interactions: int = DEFAULT_MIN_INTERACTIONS,
    catalogue: Catalogue = "log",
    half_life_days: float | None = None,
    users: pl.DataFrame | None = None,
) -> Dataset:
    """Drop users with fewer than `min_interactions`, number users and items, and sort each user's items by time.

    Sorting is stable: rows of the same time keep the order of the file.
    catalogue="log": the items that the kept users touched; "items": those and all of the item table.
    items: a table as `read_items` returns it; items of the log that it lacks get null metadata.
    half_life_days: the weight of an interaction halves with every such number of days before the newest one.
    users: a table as `read_users` returns it; users of the log that it lacks have null in its columns.
    DataError where no user is long enough, where the catalogue has a single item, or where the item table repeats ids.
    """
    if min_interactions < 1:
        raise SettingsError(f"min_interactions is 1 or more, got {min_interactions}.")
    if catalogue not in ("log", "items"):
        raise SettingsError(f"catalogue is 'log' or 'items', got {catalogue!r}.")
    if catalogue == "items" and items is None:
        raise SettingsError("catalogue='items' needs an item table: pass items=read_items(...).")
    table = None if items is None else check_items(items, file="the item table")

    frame = log.frame
    kept_users = _users_long_enough(frame, min_interactions=min_interactions)
    dense_user = kept_users.encode(frame[USER_ID])
    kept = dense_user >= 0
    if not kept.all():
        frame, dense_user = frame.filter(pl.Series(kept)), dense_user[kept]
    vocabulary = _item_vocabulary(frame[ITEM_ID], table=table if catalogue == "items" else None)
    frame = frame.with_columns(_in_type_of(frame[ITEM_ID], vocabulary))
    item_table = _item_table(vocabulary, table=table)
    sequences, timestamps = order_in_time(frame, dense_user=dense_user, num_users=len(kept_users), items=vocabulary)
    if half_life_days is not None:
        decay = time_decay(timestamps, newest=timestamps.max().item(), half_life_days=half_life_days)
        sequences = replace(sequences, weights=none_if_equal(decayed(sequences.weights, decay)))
    missing = _count_missing(vocabulary, table=table)
    report = PrepareReport(
        reading=log.report,
        min_interactions=min_interactions,
        users_in=log.frame[USER_ID].n_unique(),
        users_kept=len(kept_users),
        items_in=log.frame[ITEM_ID].n_unique(),
        items_kept=len(vocabulary),
        interactions_in=log.frame.height,
        interactions_kept=frame.height,
        items_without_metadata=missing,
        mismatch=_mismatch(frame[ITEM_ID], table=table, missing=missing),
    )
    return Dataset(
        kept_users,
        vocabulary,
        sequences,
        item_table,
        timestamps,
        report,
        user_table=None if users is None else rows_of_users(kept_users, users),
        context=context_in_time(frame, dense_user=dense_user),
    )


def _users_long_enough(frame: pl.DataFrame, *, min_interactions: int) -> Vocabulary:
    counts = frame.group_by(USER_ID).len()
    users = counts.filter(pl.col("len") >= min_interactions)[USER_ID].sort()
    if len(users) == 0:
        raise DataError(
            f"No user has {min_interactions} interactions or more: the longest history of {counts.height:,} users has "
            f"{counts['len'].max()!r}. Lower min_interactions (--set data.min_interactions=N), or give a longer log."
        )
    return Vocabulary(users)


def _item_vocabulary(column: pl.Series, *, table: pl.DataFrame | None) -> Vocabulary:
    ids = column.unique()
    if table is not None:
        catalogue = table[ITEM_ID]
        if ids.dtype != catalogue.dtype:
            ids, catalogue = ids.cast(pl.String), catalogue.cast(pl.String)
        ids = pl.concat([ids, catalogue]).unique()
    if len(ids) < 2:
        raise DataError(
            f"The log has one single item, {ids.item(0)!r}: there is nothing to choose between. "
            "Check which column holds the item ids, or give a larger log."
        )
    return Vocabulary(ids.sort())


def _item_table(vocabulary: Vocabulary, *, table: pl.DataFrame | None) -> pl.DataFrame:
    """One row per dense item: item_id, category, title, and what else the table has."""
    rows = pl.DataFrame({ITEM_ID: vocabulary.ids})
    if table is not None:
        matching = table.with_columns(_in_type_of(table[ITEM_ID], vocabulary)).drop_nulls(ITEM_ID)
        rows = rows.join(matching, on=ITEM_ID, how="left", maintain_order="left")
    for name in (CATEGORY, TITLE):
        if name not in rows.columns:
            rows = rows.with_columns(pl.lit(None, dtype=pl.String).alias(name))
    return rows.select(ITEM_ID, CATEGORY, TITLE, pl.exclude(ITEM_ID, CATEGORY, TITLE))


def _count_missing(vocabulary: Vocabulary, *, table: pl.DataFrame | None) -> int:
    if table is None:
        return len(vocabulary)
    described = pl.DataFrame({ITEM_ID: _in_type_of(table[ITEM_ID], vocabulary)})
    return pl.DataFrame({ITEM_ID: vocabulary.ids}).join(described, on=ITEM_ID, how="anti").height


def _mismatch(logged: pl.Series, *, table: pl.DataFrame | None, missing: int) -> str | None:
    """What is wrong where an item table describes none of the items of the log; missing: how many it does not."""
    if table is None or missing < logged.n_unique():
        return None
    return (
        f"the item table describes no item of the log: its ids are like {table[ITEM_ID][0]!r}, those of the log like "
        f"{logged[0]!r}; check which columns hold the ids and how they are spelt"
    )


def _in_type_of(ids: pl.Series, vocabulary: Vocabulary) -> pl.Series:
    """Ids in the type of the vocabulary, null where they have no such form: '12' and 12 name the same item."""
    return ids.cast(vocabulary.ids.dtype, strict=False)


def order_in_time(
    frame: pl.DataFrame, *, dense_user: Int32Array, num_users: int, items: Vocabulary
) -> tuple[Sequences, Times]:
    """Rows sorted by user, then time, then file order, as sequences and their times; all users and items are known."""
    weights = {WEIGHT: frame[WEIGHT]} if WEIGHT in frame.columns else {}
    ordered = pl.DataFrame(
        {USER_ID: dense_user, TIMESTAMP: frame[TIMESTAMP], ITEM_ID: items.encode(frame[ITEM_ID]), **weights}
    ).sort(USER_ID, TIMESTAMP, maintain_order=True)
    offsets = np.zeros(num_users + 1, dtype=np.int64)
    np.cumsum(np.bincount(dense_user, minlength=num_users), out=offsets[1:])
    flat = np.ascontiguousarray(ordered[ITEM_ID].to_numpy())
    counts = none_if_equal(np.ascontiguousarray(ordered[WEIGHT].to_numpy())) if weights else None
    return Sequences(items=flat, offsets=offsets, weights=counts), np.ascontiguousarray(ordered[TIMESTAMP].to_numpy())
