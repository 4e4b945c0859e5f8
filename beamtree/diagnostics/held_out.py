"""The sample of the diagnostics: held-out users drawn by seed, with a few of their later items."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from beamtree.data.dataset import Dataset
from beamtree.data.sequences import Sequences, cut_histories
from beamtree.data.split import HeldOut, Split
from beamtree.errors import DataError, InputError
from beamtree.types import Int32Array, Int64Array

Group = Literal["validation", "test"]

TARGETS_PER_USER = 3


@dataclass(frozen=True, eq=False)
class SampledUsers:
    """Held-out users and, for each, up to three held-out items spread over what they did later.

    A target's history is everything before it, items after the split included. user_row: (targets,), the row of the
    user in `users`; position: (targets,), the target's index in the flat sequences.
    """

    group: Group
    users: HeldOut
    available: int
    sequences: Sequences
    user_row: Int64Array = field(init=False)
    position: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        lengths = self.sequences.count_targets(self.users.label_start, self.users.label_end)
        counts = np.minimum(lengths, TARGETS_PER_USER)
        user_row = np.repeat(np.arange(len(self.users)), counts)
        number = np.arange(len(user_row)) - np.repeat(np.cumsum(counts) - counts, counts)
        object.__setattr__(self, "user_row", user_row)
        places, start = self.sequences.target_places, self.users.label_start
        first = start if places is None else np.searchsorted(places, start)
        chosen = first[user_row] + number * lengths[user_row] // counts[user_row]
        object.__setattr__(self, "position", chosen if places is None else places[chosen])

    def __len__(self) -> int:
        return len(self.user_row)

    @property
    def targets(self) -> Int32Array:
        """The items that came next, (targets,)."""
        return self.sequences.items[self.position]

    def histories(self, length: int) -> Int32Array:
        """What came before each target, (targets, length), oldest first, -1 in front."""
        starts = self.users.history_start[self.user_row]
        return cut_histories(self.sequences.items, starts=starts, ends=self.position, length=length)


def sample_held_out(dataset: Dataset, split: Split, *, group: Group | None, count: int, seed: int) -> SampledUsers:
    """A sample of held-out users: test users, or validation users if requested or if there are no test users.

    Part weights and the stopping point were chosen on validation users, so that a model looks better on them.
    DataError if no users are held out.
    """
    if count < 1:
        raise InputError(f"--max-users takes a number of at least 1, got {count}.")
    chosen: Group = group or ("test" if len(split.test) or not len(split.validation) else "validation")
    users = split.validation if chosen == "validation" else split.test
    if len(users) == 0:
        raise DataError(
            f"Expected held-out {chosen} users, but there are none: {split.description}. Fit with --holdout users, "
            "last or time, and look into that model."
        )
    sample = np.sort(np.random.default_rng(seed).permutation(len(users))[:count])
    return SampledUsers(chosen, users.take(sample), len(users), dataset.sequences)
