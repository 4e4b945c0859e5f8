"""Training instances: targets and the items before them, cut from the flat sequences only when a batch is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from beamtree.data.features import Features
from beamtree.data.request_features import NO_FEATURES, DatasetFeatures
from beamtree.data.requests import Histories, Requests
from beamtree.data.sequences import Sequences
from beamtree.data.split import Spans
from beamtree.errors import DataError, InputError
from beamtree.training.horizon import TargetHorizon, items_at, mean_weight, weights_at
from beamtree.types import NOTHING, AnyArray, Float32Array, Int32Array, Int64Array

VERY_NEXT = TargetHorizon()


@dataclass(frozen=True, eq=False)
class Batch:
    """A training batch: whole histories, and the items that followed them.

    targets: (instances, targets), -1 where an instance has fewer; the targets of an instance share its negatives.
    level_weights: (instances, targets, height), the label of each target's ancestor on each level; None where all are
    1, shared evenly by the targets of an instance. users: (instances,), dense; times: (instances,), of the very next
    interaction after each history. Users and times are None if they are not known. target_weights: (instances,
    targets), what each target counts beside its label, about 1 on average; None where all count alike. user_features,
    context: (instances,) rows, of the users and of the very next interaction; None where nothing is read.
    """

    histories: Histories
    targets: Int32Array
    level_weights: Float32Array | None = None
    users: Int32Array | None = None
    times: AnyArray | None = None
    target_weights: Float32Array | None = None
    user_features: Features | None = None
    context: Features | None = None

    def __post_init__(self) -> None:
        if self.targets.ndim != 2 or len(self.targets) != len(self.histories):
            raise InputError(
                f"Expected targets (instances, targets) for {len(self.histories)} histories, got {self.targets.shape}."
            )
        weights = self.level_weights
        if weights is not None and (weights.ndim != 3 or weights.shape[:2] != self.targets.shape):
            raise InputError(
                f"Expected level weights (instances, targets, height) for targets {self.targets.shape}, "
                f"got {weights.shape}."
            )
        if self.target_weights is not None and self.target_weights.shape != self.targets.shape:
            raise InputError(
                f"Expected a weight for each of the targets {self.targets.shape}, got {self.target_weights.shape}."
            )

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def requests(self) -> Requests:
        """The instances as a score is asked for them: nothing is excluded, everything allowed."""
        return Requests(
            self.histories,
            users=self.users,
            times=self.times,
            user_features=self.user_features,
            context=self.context,
        )

    @property
    def shares(self) -> Float32Array | None:
        """What each target counts of its instance, (instances, targets): an even share times its weight; None: even."""
        if self.target_weights is None:
            return None
        is_target = self.targets != NOTHING
        even: Float32Array = is_target / is_target.sum(axis=1, keepdims=True, dtype=np.float32)
        return even * self.target_weights

    def counted_levels(self, height: int) -> Float32Array | None:
        """What each target counts on each level of a tree, (instances, targets, height): its label times its weight.

        None where all labels are 1 and all weights alike: then the targets of an instance share it evenly.
        """
        if self.shares is None or self.target_weights is None:
            return self.level_weights
        if self.level_weights is None:
            return np.repeat(self.shares[:, :, None], height, axis=2)
        return self.level_weights * self.target_weights[:, :, None]


class InstancePart(NamedTuple):
    """Numbers (instances,) of a part of a batch, and its share of the batch's mean loss."""

    instances: Int64Array
    share: float


def one_target_each(batch: Batch, *, height: int) -> Batch:
    """A batch of several targets as one of more instances: each target (instances, 1) with its history.

    Weights are such that the mean loss over the new instances is the mean over the histories.
    """
    weights = batch.counted_levels(height)
    if batch.targets.shape[1] == 1 and (batch.targets != NOTHING).all():
        return replace(batch, level_weights=weights, target_weights=None)
    row, column = np.nonzero(batch.targets != NOTHING)
    if weights is None:
        share = (1.0 / np.bincount(row)[row]).astype(np.float32)
        chosen = np.repeat(share[:, None], height, axis=1)
    else:
        chosen = weights[row, column]
    scale = len(row) / len(batch.targets)
    return Batch(
        histories=batch.histories.take(row),
        targets=batch.targets[row, column][:, None],
        level_weights=(chosen * np.float32(scale))[:, None],
        users=None if batch.users is None else batch.users[row],
        times=None if batch.times is None else batch.times[row],
        user_features=None if batch.user_features is None else batch.user_features.take(row),
        context=None if batch.context is None else batch.context.take(row),
    )


@dataclass(frozen=True, eq=False)
class TrainingInstances:
    """Every position of every training span, from its first target on, is one instance, if a target follows.

    An instance has a number; `batch` finds its span by bisection. Nothing is stored per instance, except where only
    some interactions may be targets.
    times: of every interaction, aligned with the items of the sequences, or None. features: of the users and contexts.
    """

    sequences: Sequences
    spans: Spans
    first_target: int
    horizon: TargetHorizon = VERY_NEXT
    times: AnyArray | None = None
    features: DatasetFeatures = NO_FEATURES
    _first_instance: Int64Array = field(init=False, repr=False)
    _followed: Int64Array | None = field(init=False, repr=False, default=None)
    _scale: float = field(init=False, repr=False, default=1.0)

    def __post_init__(self) -> None:
        targets = np.maximum(self.spans.end - self.spans.start - self.first_target, 0)
        object.__setattr__(self, "_first_instance", np.concatenate([[0], np.cumsum(targets)]).astype(np.int64))
        if self.sequences.target_places is not None:
            span, _, following = self._places(np.arange(self._first_instance[-1]))
            is_followed = self.sequences.count_targets(following, self.spans.end[span]) > 0
            object.__setattr__(self, "_followed", np.flatnonzero(is_followed))
        if len(self) == 0:
            raise DataError(
                f"Expected training users with more than {self.first_target} interactions, found none among "
                f"{len(targets)} users. Use a longer log or hold out fewer users."
            )
        first = np.minimum(self.spans.start + self.first_target, self.spans.end)
        object.__setattr__(self, "_scale", 1.0 / mean_weight(self.sequences, first, self.spans.end))

    def __len__(self) -> int:
        return int(self._first_instance[-1]) if self._followed is None else len(self._followed)

    def batch(self, instances: Int64Array, *, epoch: int = 0) -> Batch:
        """The histories of the numbered instances, and their targets as drawn in an epoch."""
        positions = self._positions(instances)
        span, start, history_end = self._places(positions)
        places = self.horizon.draw(self.sequences, history_end, self.spans.end[span], numbers=positions, epoch=epoch)
        return Batch(
            histories=Histories(self.sequences.items, start, history_end),
            targets=items_at(self.sequences, places),
            target_weights=weights_at(self.sequences, places, scale=self._scale),
            users=self.spans.user[span],
            times=None if self.times is None else self.times[history_end],
            user_features=None if self.features.users is None else self.features.users.take(self.spans.user[span]),
            context=None if self.features.contexts is None else self.features.contexts.take(history_end),
        )

    def divide(self, instances: Int64Array, parts: int) -> list[InstancePart]:
        """The numbered instances in as many parts of nearly one size; a part has neighbouring users, much the same ones
        in every batch."""
        cuts = np.array_split(np.sort(instances), parts)
        return [InstancePart(cut, len(cut) / len(instances)) for cut in cuts]

    def state(self) -> dict[str, AnyArray]:
        """Nothing: a batch depends on the numbers of its instances alone."""
        return {}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """There is nothing to remember."""

    def targets(self) -> Int32Array:
        """The first target of every instance (instances,), in the order of their numbers, as in the first epoch."""
        every = self._positions(np.arange(len(self), dtype=np.int64))
        span, _, history_end = self._places(every)
        alone = replace(self.horizon, each=1)
        places = alone.draw(self.sequences, history_end, self.spans.end[span], numbers=every, epoch=0)
        return items_at(self.sequences, places[:, 0])

    def with_one_target(self) -> "TrainingInstances":
        """The same histories, each with its first target alone."""
        return replace(self, horizon=replace(self.horizon, each=1))

    def with_seed(self, seed: int) -> "TrainingInstances":
        """The same histories, with targets drawn by another seed."""
        return replace(self, horizon=replace(self.horizon, seed=seed))

    def _positions(self, instances: Int64Array) -> Int64Array:
        """Where the numbered instances stand among all positions of the spans from their first targets on."""
        return instances if self._followed is None else self._followed[instances]

    def _places(self, positions: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The span of each position, where its history starts, and where it ends: there the next item stands."""
        span = np.searchsorted(self._first_instance, positions, side="right") - 1
        start = self.spans.start[span]
        return span, start, start + self.first_target + positions - self._first_instance[span]
