"""Training and held-out users, as spans of the flat sequences.

A split copies no interactions: it only names positions in `Sequences.items`. Every function draws from its own
seed, and dense users are numbered by raw id, so the order of the rows in the log does not change a split.
"""

from dataclasses import dataclass, fields
from typing import Final, Literal, NamedTuple

import numpy as np

from beamtree.data.dataset import Dataset
from beamtree.data.groups import (
    at_least_one,
    check_folds,
    check_shares,
    describe_users,
    find_long_users,
    group_sizes,
    last_two_targets,
    users_with_targets,
)
from beamtree.data.sequences import Sequences, cut_histories, flatten_spans, flatten_targets
from beamtree.errors import DataError, SettingsError
from beamtree.types import BoolArray, Int32Array, Int64Array, IntArray

Protocol = Literal["clean", "paper"]

CLEAN_FIRST_TARGET: Final = 1
PAPER_FIRST_TARGET: Final = 14
PAPER_SHORTEST_HISTORY: Final = 15
MIN_LENGTH_FOR_TWO_LABELS: Final = 3


@dataclass(frozen=True, eq=False)
class Spans:
    """Stretches of sequences to train on: user int32 (n,), start and end int64 (n,), positions in Sequences.items."""

    user: Int32Array
    start: Int64Array
    end: Int64Array

    def __post_init__(self) -> None:
        _check_columns(self)
        _check_order("start", self.start, "end", self.end)

    def __len__(self) -> int:
        return len(self.user)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Users to evaluate on: the history span is the input, the label span the labels. All arrays (n,)."""

    user: Int32Array
    history_start: Int64Array
    history_end: Int64Array
    label_start: Int64Array
    label_end: Int64Array

    def __post_init__(self) -> None:
        _check_columns(self)
        _check_order("history_start", self.history_start, "history_end", self.history_end)
        _check_order("label_start", self.label_start, "label_end", self.label_end)

    def __len__(self) -> int:
        return len(self.user)

    def histories(self, sequences: Sequences, length: int) -> Int32Array:
        """The last `length` items of each history, oldest first, padded in front with -1: (n, length)."""
        return cut_histories(sequences.items, starts=self.history_start, ends=self.history_end, length=length)

    def labels(self, sequences: Sequences, distinct: bool) -> tuple[Int32Array, Int64Array]:
        """The label items, flat, and offsets (n + 1,); interactions that may not be targets are left out.

        With distinct, each item counts once per user, at its first place; without, repeats stay (the paper's protocol).
        """
        flat, offsets = flatten_targets(sequences, starts=self.label_start, ends=self.label_end)
        if not distinct or len(flat) == 0:
            return flat, offsets
        row = np.repeat(np.arange(len(self), dtype=np.int64), np.diff(offsets))
        _, first = np.unique(row * (int(flat.max()) + 1) + flat, return_index=True)
        first.sort()
        kept = np.bincount(row[first], minlength=len(self))
        return flat[first], np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))

    def seen(self, sequences: Sequences) -> tuple[Int32Array, Int64Array]:
        """All items of each history, however long, flat, and offsets (n + 1,)."""
        return flatten_spans(sequences.items, starts=self.history_start, ends=self.history_end)

    def take(self, index: IntArray | BoolArray | slice) -> "HeldOut":
        """The rows that an index array, a mask or a slice picks."""
        return HeldOut(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


@dataclass(frozen=True, eq=False)
class Split:
    """What to train on and what to hold out.

    first_target: index inside a training span of its first target; 1 means that the second interaction is the first
    to be predicted. Spans no longer than that hold no target.
    description: a sentence to print with every number that comes from this split.
    """

    train: Spans
    validation: HeldOut
    test: HeldOut
    first_target: int
    description: str

    def __post_init__(self) -> None:
        if self.first_target < 1:
            raise SettingsError(f"The first target needs an item before it: 1 or more, got {self.first_target}.")


class Fold(NamedTuple):
    """One of `folds` groups of users of about equal size, numbered from 0."""

    number: int
    folds: int


def split_users(
    sequences: Sequences,
    *,
    seed: int,
    validation_share: float = 0.1,
    test_share: float = 0.1,
    protocol: Protocol = "clean",
    min_held_out: int = 1,
    fold: Fold | None = None,
) -> Split:
    """Hold out whole users: their first half is the history (and is trained on), their second half the labels.

    min_held_out: users with fewer interactions are trained on whole; the shares are of the others, and which of these
    are held out does not depend on how many shorter ones there are.
    protocol="clean": the first half is n // 2 items and the second interaction is the first target.
    protocol="paper": the first half is n // 2 + 1 items, held-out users whose first half has fewer than 15 items are
    skipped, and the 15th interaction is the first target.
    fold: instead of shares, test on this group of the users that can be held out and validate on the next one, so that
    over all folds each user is tested once.
    SettingsError for impossible shares; DataError where there are too few users, or too few long ones, to hold out.
    """
    if protocol not in ("clean", "paper"):
        raise SettingsError(f"protocol is 'clean' or 'paper', got {protocol!r}.")
    check_shares(validation_share, test_share)
    extra, shortest = (1, PAPER_SHORTEST_HISTORY) if protocol == "paper" else (0, 1)
    middle = sequences.offsets[:-1] + np.minimum(sequences.lengths // 2 + extra, sequences.lengths)
    long_users = users_with_targets(
        find_long_users(sequences, min_held_out=min_held_out), sequences, starts=middle, ends=sequences.offsets[1:]
    )
    shuffled = long_users[np.random.default_rng(seed).permutation(len(long_users))]
    if fold is None:
        num_validation, num_test = group_sizes(
            len(long_users), validation_share, test_share, num_users=len(sequences), min_held_out=min_held_out
        )
        validation_users, test_users = np.split(shuffled[: num_validation + num_test], [num_validation])
    else:
        check_folds(fold.folds, num_long=len(long_users), min_held_out=min_held_out)
        groups = np.array_split(shuffled, fold.folds)
        validation_users, test_users = groups[(fold.number + 1) % fold.folds], groups[fold.number]
    validation_users, test_users = np.sort(validation_users), np.sort(test_users)
    span_end = sequences.offsets[1:].copy()
    for held_out in (validation_users, test_users):
        span_end[held_out] = middle[held_out]

    def held_out_halves(users: Int32Array) -> HeldOut:
        start, cut, end = sequences.offsets[users], middle[users], sequences.offsets[users + 1]
        usable = (cut - start >= shortest) & (end > cut)
        return HeldOut(user=users, history_start=start, history_end=cut, label_start=cut, label_end=end).take(usable)

    validation, test = held_out_halves(validation_users), held_out_halves(test_users)
    first_target = PAPER_FIRST_TARGET if protocol == "paper" else CLEAN_FIRST_TARGET
    skipped = len(validation_users) + len(test_users) - len(validation) - len(test)
    users_said = describe_users(len(sequences), len(long_users), min_held_out=min_held_out)
    fold_said = "" if fold is None else f", fold {fold.number + 1} of {fold.folds}"
    description = (
        f"{protocol} protocol, seed {seed}{fold_said}: {users_said} {len(validation):,} are held out for validation and"
        f" {len(test):,} for test; history = first n // 2{' + 1' if extra else ''} items (trained on too),"
        f" labels = the rest; first target = interaction {first_target + 1}"
        + (f"; {skipped:,} held-out users skipped as too short" if skipped else "")
    )
    train = Spans(user=_all_users(sequences), start=sequences.offsets[:-1].copy(), end=span_end)
    return Split(train=train, validation=validation, test=test, first_target=first_target, description=description)


def split_leave_last_out(sequences: Sequences, *, seed: int, min_held_out: int = 1) -> Split:
    """Hold out each user's last item for test and the one before it for validation; train on what precedes both.

    Users with fewer than `min_held_out` interactions, or fewer than three, are trained on whole and not evaluated.
    Where only some interactions may be targets, the last two of these are held out, with all that came after them.
    DataError where no user is long enough.
    """
    min_held_out = max(min_held_out, MIN_LENGTH_FOR_TWO_LABELS)
    long_users, before_last, last = last_two_targets(
        sequences, find_long_users(sequences, min_held_out=min_held_out), min_held_out=min_held_out
    )
    span_end = sequences.offsets[1:].copy()
    span_end[long_users] = before_last[long_users]
    start, first_label, label = sequences.offsets[long_users], before_last[long_users], last[long_users]
    validation = HeldOut(long_users, start, first_label, first_label, first_label + 1)
    test = HeldOut(long_users, start, label, label, label + 1)
    users_said = describe_users(len(sequences), len(long_users), min_held_out=min_held_out)
    description = (
        f"leave-last-out, seed {seed}: {users_said} {len(long_users):,} are evaluated; last item = test label,"
        f" the one before = validation label; first target = interaction {CLEAN_FIRST_TARGET + 1}"
    )
    train = Spans(user=_all_users(sequences), start=sequences.offsets[:-1].copy(), end=span_end)
    return Split(train, validation, test, CLEAN_FIRST_TARGET, description)


def split_by_time(
    dataset: Dataset,
    *,
    seed: int,
    validation_share: float = 0.1,
    test_share: float = 0.1,
    min_held_out: int = 1,
) -> Split:
    """Cut the whole log at two moments: train before the first, validate between them, test after the second.

    The moments leave about the given shares of all interactions after them; interactions of one moment stay together.
    A user is evaluated when there is something on both sides of the cut, and at least `min_held_out` interactions in
    the whole log, counted as in the other splits; whatever any user did after a cut is not trained on.
    DataError where the dataset carries no timestamps, no user is long enough, or a cut leaves a side empty.
    """
    check_shares(validation_share, test_share)
    sequences, timestamps = dataset.sequences, dataset.timestamps
    if timestamps is None:
        raise DataError("A split by time needs timestamps, but this dataset carries none: prepare it from its log.")
    long_users = find_long_users(sequences, min_held_out=min_held_out)
    size = len(timestamps)
    ordered = np.sort(timestamps)
    after_second = at_least_one(size, share=test_share)
    after_first = after_second + at_least_one(size, share=validation_share)
    test_from = ordered[size - after_second] if test_share else np.inf
    validation_from = ordered[max(0, size - after_first)] if validation_share else test_from
    if not ordered[0] < validation_from or (validation_share and not validation_from < test_from):
        raise DataError(
            f"The times {ordered[0]} .. {ordered[-1]} cannot be cut into train, validation and test with shares "
            f"{validation_share} and {test_share}: too few distinct moments. Use split_users instead."
        )
    start, end = sequences.offsets[:-1], sequences.offsets[1:]
    first_cut = start + _count_per_user(timestamps < validation_from, sequences.offsets)
    second_cut = start + _count_per_user(timestamps < test_from, sequences.offsets)
    users = _all_users(sequences)

    def held_out_after(cut: Int64Array, until: Int64Array) -> HeldOut:
        is_usable = (cut > start) & (sequences.count_targets(cut, until) > 0)
        usable = long_users[is_usable[long_users]]
        return HeldOut(usable, start[usable], cut[usable], cut[usable], until[usable])

    trained = first_cut > start
    train = Spans(user=users[trained], start=start[trained], end=first_cut[trained])
    validation, test = held_out_after(first_cut, second_cut), held_out_after(second_cut, end)
    users_said = describe_users(len(train), len(long_users), min_held_out=min_held_out)
    description = (
        f"by time, seed {seed}: {users_said} {len(validation):,} are held out for validation and {len(test):,} for"
        f" test; train before {validation_from}, validation from there to {test_from}, test from there on;"
        f" first target = interaction {CLEAN_FIRST_TARGET + 1}"
    )
    return Split(train, validation, test, CLEAN_FIRST_TARGET, description)


def split_none(sequences: Sequences) -> Split:
    """Train on all users and hold out none: the last fit before a model is shipped."""
    nobody = np.empty(0, dtype=np.int64)
    empty = HeldOut(nobody.astype(np.int32), nobody, nobody, nobody, nobody)
    train = Spans(_all_users(sequences), sequences.offsets[:-1].copy(), sequences.offsets[1:].copy())
    description = f"nothing held out: all {len(sequences):,} users are trained on whole; first target = interaction 2"
    return Split(train, empty, empty, CLEAN_FIRST_TARGET, description)


def _all_users(sequences: Sequences) -> Int32Array:
    return np.arange(len(sequences), dtype=np.int32)


def _count_per_user(flags: BoolArray, offsets: Int64Array) -> Int64Array:
    """How many flags of each user are set, int64 (users,)."""
    running = np.zeros(len(flags) + 1, dtype=np.int64)
    np.cumsum(flags, out=running[1:])
    return np.asarray(running[offsets[1:]] - running[offsets[:-1]])


def _check_columns(table: Spans | HeldOut) -> None:
    for field in fields(table):
        column = getattr(table, field.name)
        wanted = np.int32 if field.name == "user" else np.int64
        if column.dtype != wanted or column.shape != table.user.shape or column.ndim != 1:
            raise DataError(
                f"{type(table).__name__}.{field.name} is {np.dtype(wanted)} of shape {table.user.shape}, "
                f"got {column.dtype} of shape {column.shape}."
            )


def _check_order(lower_name: str, lower: Int64Array, upper_name: str, upper: Int64Array) -> None:
    if (lower > upper).any():
        raise DataError(f"{lower_name} must not exceed {upper_name}, but does in row {int(np.argmax(lower > upper))}.")
