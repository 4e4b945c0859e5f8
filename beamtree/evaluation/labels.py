"""Labels of held-out users, as far as they can be recommended."""

from dataclasses import dataclass

import numpy as np

from beamtree.config import Config
from beamtree.data.sequences import Sequences
from beamtree.data.split import HeldOut
from beamtree.errors import DataError
from beamtree.types import BoolArray, Int32Array, Int64Array


@dataclass(frozen=True, eq=False)
class ReachableLabels:
    """Held-out users and the labels that count for them, at least one each.

    users: those with a label; labels: (flat, offsets) as `HeldOut.labels` gives them; excludes_seen: whether items of a
    history must not be recommended. num_seen_labels: labels that do not count because they are in the history;
    num_left_out: users with no other labels.
    """

    users: HeldOut
    labels: tuple[Int32Array, Int64Array]
    excludes_seen: bool
    num_seen_labels: int = 0
    num_left_out: int = 0


def reachable_labels(users: HeldOut, sequences: Sequences, *, config: Config) -> ReachableLabels:
    """The labels that count under the protocol of the settings.

    paper: all, each time; clean: distinct ones and, where seen items are not recommended, none that was seen before.
    DataError where no user has a label that counts.
    """
    users = users.take(sequences.count_targets(users.label_start, users.label_end) > 0)
    if config.data.protocol == "paper":
        return ReachableLabels(users, users.labels(sequences, distinct=False), excludes_seen=False)
    items, offsets = users.labels(sequences, distinct=True)
    if not config.retrieval.excludes_seen:
        return ReachableLabels(users, (items, offsets), excludes_seen=False)
    rows = np.repeat(np.arange(len(users)), np.diff(offsets))
    counts = ~_among((items, rows), users.seen(sequences))
    per_user = np.bincount(rows[counts], minlength=len(users))
    asked = per_user > 0
    if len(users) and not asked.any():
        raise DataError(
            f"All labels of the {len(users):,} held-out users were seen before, and seen items are not recommended: "
            "there is nothing to hit. Set retrieval.exclude_seen=false, or hold out more users."
        )
    kept_offsets = np.concatenate(([0], np.cumsum(per_user[asked], dtype=np.int64)))
    return ReachableLabels(
        users.take(asked),
        (items[counts], kept_offsets),
        excludes_seen=True,
        num_seen_labels=int(np.count_nonzero(~counts)),
        num_left_out=int(np.count_nonzero(~asked)),
    )


def _among(labels: tuple[Int32Array, Int64Array], seen: tuple[Int32Array, Int64Array]) -> BoolArray:
    """Whether each label (items, rows) is among the seen items (flat, offsets) of its row."""
    items, rows = labels
    seen_items, offsets = seen
    seen_rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    stride = 1 + max(int(items.max(initial=0)), int(seen_items.max(initial=0)))
    return np.isin(rows * stride + items, seen_rows * stride + seen_items)
