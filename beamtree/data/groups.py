"""Users eligible to be held out, and the sizes of the held-out groups."""

import numpy as np

from beamtree.data.sequences import Sequences
from beamtree.errors import DataError, SettingsError
from beamtree.types import Int32Array, Int64Array


def find_long_users(sequences: Sequences, *, min_held_out: int) -> Int32Array:
    """Users with at least the given number of interactions, ascending; DataError if there are none."""
    users = np.flatnonzero(sequences.lengths >= min_held_out).astype(np.int32)
    if len(users) == 0:
        raise DataError(
            f"No user can be held out: that needs {min_held_out} interactions, and the longest history of "
            f"{len(sequences):,} users has {int(sequences.lengths.max(initial=0))}. "
            "Lower data.min_held_out (--set data.min_held_out=N), or hold out nothing (--holdout none)."
        )
    return users


def users_with_targets(users: Int32Array, sequences: Sequences, *, starts: Int64Array, ends: Int64Array) -> Int32Array:
    """The given users (n,) with a target in their span; all of them if every interaction may be a target."""
    if sequences.target_places is None:
        return users
    return users[sequences.count_targets(starts, ends)[users] > 0]


def last_two_targets(
    sequences: Sequences, users: Int32Array, *, min_held_out: int
) -> tuple[Int32Array, Int64Array, Int64Array]:
    """Where the last two targets of some users are, both (users,); and those users who have two, and a history.

    DataError if there are none.
    """
    start, end = sequences.offsets[:-1], sequences.offsets[1:]
    places = sequences.target_places
    if places is None:
        return users, end - 2, end - 1
    after = np.searchsorted(places, end)
    last, before_last = places[np.maximum(after - 1, 0)], places[np.maximum(after - 2, 0)]
    kept = users[(sequences.count_targets(start, end)[users] >= 2) & (before_last[users] > start[users])]
    if len(kept) == 0:
        raise DataError(
            f"No user can be held out: of the {len(users):,} with {min_held_out} interactions none has two of the "
            "types in log.target_events after the first. Name more types, or hold out nothing (--holdout none)."
        )
    return kept, before_last, last


def describe_users(num_learned: int, num_long: int, *, min_held_out: int) -> str:
    """The numbers of training users and of eligible users: the first half of a sentence on the held-out ones."""
    return f"{num_learned:,} users are trained on; of {num_long:,} with at least {min_held_out} interactions"


def group_sizes(
    num_long: int, validation_share: float, test_share: float, *, num_users: int, min_held_out: int
) -> tuple[int, int]:
    """Users per held-out group: the rounded share of the long ones, at least one where the share is above zero.

    DataError where there are too few long users, or none would be left to train on.
    """
    sizes = [at_least_one(num_long, share=share) for share in (validation_share, test_share)]
    if sum(sizes) >= num_users:
        raise DataError(
            f"Holding out {sizes[0]} + {sizes[1]} of {num_users} users leaves nobody to train on: "
            "give a larger log, or hold out nothing (--holdout none)."
        )
    if sum(sizes) > num_long:
        raise DataError(
            f"Holding out {sizes[0]} + {sizes[1]} users needs as many with at least {min_held_out} interactions, but "
            f"{num_long} of {num_users:,} users have them. Lower data.min_held_out (--set data.min_held_out=N), or "
            "hold out nothing (--holdout none)."
        )
    return sizes[0], sizes[1]


def check_folds(num_folds: int, *, num_long: int, min_held_out: int) -> None:
    """DataError where there are fewer users to hold out than folds; SettingsError for fewer than two folds."""
    if num_folds < 2:
        raise SettingsError(f"Expected two folds or more, one to test on and one to validate on; got {num_folds}.")
    if num_folds > num_long:
        raise DataError(
            f"{num_folds} folds need as many users with at least {min_held_out} interactions, and there are "
            f"{num_long:,}. Ask for fewer folds, or lower data.min_held_out (--set data.min_held_out=N)."
        )


def check_shares(validation_share: float, test_share: float) -> None:
    """SettingsError where the shares are negative or leave nothing."""
    if not (0 <= validation_share < 1 and 0 <= test_share < 1 and validation_share + test_share < 1):
        raise SettingsError(
            "validation_share and test_share are at least 0 and together below 1, "
            f"got {validation_share} and {test_share}."
        )


def at_least_one(size: int, *, share: float) -> int:
    """The rounded share of a size, and at least one where the share is above zero."""
    return max(1, round(size * share)) if share > 0 else 0
