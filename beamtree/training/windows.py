"""Training spans cut into windows: what a sequence encoder learns from, targets after every input."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from beamtree.data.features import Features
from beamtree.data.request_features import NO_FEATURES, DatasetFeatures
from beamtree.data.sequences import Sequences
from beamtree.data.split import Split
from beamtree.model.item_softmax import WeighedTargets
from beamtree.training.horizon import TargetHorizon, items_at, mean_weight, weights_at
from beamtree.training.instances import VERY_NEXT, InstancePart
from beamtree.types import NOTHING, AnyArray, Float32Array, Int32Array, Int64Array


class WindowBatch(NamedTuple):
    """Some windows laid end to end, the shortest first.

    inputs: (positions,) items, oldest first within a window; targets: (positions, targets), what follows each input, -1
    where there are fewer; lengths: (windows,) inputs of each window, at least 1. shares: (positions, targets), what
    each target counts, 1 for all targets of a position together on average; None where they share it evenly.
    user_features: of the user of each window; context: of the interaction after each position, which is all that a
    request knows of it; None where nothing is read.
    """

    inputs: Int32Array
    targets: Int32Array
    lengths: Int64Array
    shares: Float32Array | None = None
    user_features: Features | None = None
    context: Features | None = None

    @property
    def labels(self) -> Int32Array | WeighedTargets:
        """The targets as a loss over items takes them."""
        return self.targets if self.shares is None else WeighedTargets(self.targets, self.shares)

    def divided(self, parts: int) -> list["WindowBatch"]:
        """As many parts as there are windows for, at most `parts`, of nearly the same windows and positions."""
        starts = np.cumsum(self.lengths) - self.lengths
        found = []
        for number in range(min(parts, len(self.lengths))):
            lengths = self.lengths[number::parts]
            shift = starts[number::parts] - (np.cumsum(lengths) - lengths)
            rows = np.arange(lengths.sum()) + np.repeat(shift, lengths)
            shares = None if self.shares is None else self.shares[rows]
            users = None if self.user_features is None else self.user_features.take(slice(number, None, parts))
            context = None if self.context is None else self.context.take(rows)
            found.append(WindowBatch(self.inputs[rows], self.targets[rows], lengths, shares, users, context))
        return found


@dataclass(frozen=True)
class TrainingWindows:
    """The training spans cut, from their ends, into windows of `length` inputs, each with a target.

    Neighbouring windows share one item, so that every interaction after the first is next in line exactly once.
    Targets before the split's first one are not learned from, except inside later windows, where they are histories.
    first, end: the window's part of the flat items, the last being no input; span_end: where its span ends.
    horizon: how targets are drawn from what follows an input. scale: what weights of targets are multiplied by, so that
    positions count 1 on average. Windows after the last target of a user are left out. user: (windows,), dense;
    features: of users and contexts, as far as they are read.
    """

    sequences: Sequences
    first: Int64Array
    end: Int64Array
    span_end: Int64Array
    user: Int32Array
    horizon: TargetHorizon
    scale: float = 1.0
    features: DatasetFeatures = NO_FEATURES

    @classmethod
    def cut(
        cls,
        sequences: Sequences,
        split: Split,
        *,
        length: int,
        horizon: TargetHorizon = VERY_NEXT,
        features: DatasetFeatures = NO_FEATURES,
    ) -> "TrainingWindows":
        """Windows of all training spans."""
        num_targets = np.maximum(split.train.end - split.train.start - split.first_target, 0)
        num_windows = -(-num_targets // length)
        start, span_end = (np.repeat(bound, num_windows) for bound in (split.train.start, split.train.end))
        first_window = np.cumsum(num_windows) - num_windows
        from_the_end = np.arange(len(start)) - np.repeat(first_window, num_windows)
        end = span_end - length * from_the_end
        first = np.maximum(start, end - length - 1)
        user = np.repeat(split.train.user, num_windows)
        windows = cls(sequences, first, end, span_end, user, horizon, features=features)
        if sequences.weights is None:
            return windows
        windows = windows.take(np.flatnonzero(sequences.count_targets(first + 1, span_end) > 0))
        return replace(windows, scale=windows._scale())

    def __len__(self) -> int:
        return len(self.first)

    @property
    def lengths(self) -> Int64Array:
        """Inputs of each window (windows,)."""
        return self.end - self.first - 1

    def take(self, chosen: Int64Array) -> "TrainingWindows":
        """Some of the windows."""
        kept = {name: getattr(self, name)[chosen] for name in ("first", "end", "span_end", "user")}
        return replace(self, **kept)

    def counts(self, num_items: int) -> Int64Array:
        """How often each item (items,) is next in line."""
        items = self.sequences.items
        begun = np.bincount(self.first + 1, minlength=len(items) + 1)
        ended = np.bincount(self.end, minlength=len(items) + 1)
        times_wanted = np.cumsum(begun - ended)[:-1]
        return np.bincount(items, weights=times_wanted, minlength=num_items).astype(np.int64)

    def batch(self, instances: Int64Array, *, epoch: int = 0) -> WindowBatch:
        """The numbered windows, with targets as drawn in an epoch."""
        lengths = self.end[instances] - self.first[instances] - 1
        by_length = np.argsort(lengths, kind="stable")
        chosen, lengths = instances[by_length], lengths[by_length]
        place = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        following = np.repeat(self.first[chosen], lengths) + place + 1
        ends = np.repeat(self.span_end[chosen], lengths)
        places = self.horizon.draw(self.sequences, following, ends, numbers=following, epoch=epoch)
        shares = weights_at(self.sequences, places, scale=self.scale)
        if shares is not None:
            shares /= np.maximum((places != NOTHING).sum(axis=1, keepdims=True, dtype=np.float32), 1.0)
        users, contexts = self.features.users, self.features.contexts
        return WindowBatch(
            self.sequences.items[following - 1],
            items_at(self.sequences, places),
            lengths,
            shares,
            user_features=None if users is None else users.take(self.user[chosen]),
            context=None if contexts is None else contexts.take(following),
        )

    def _scale(self) -> float:
        """One over what a position counts on average: nothing after the last target, the mean weight before it."""
        lengths = self.lengths
        following = np.arange(lengths.sum()) + np.repeat(self.first + 1 - (np.cumsum(lengths) - lengths), lengths)
        share = (self.sequences.count_targets(following, np.repeat(self.span_end, lengths)) > 0).mean()
        return float(1.0 / (mean_weight(self.sequences, self.first + 1, self.end) * share))

    def divide(self, instances: Int64Array, parts: int) -> list[InstancePart]:
        """The numbered windows in as many parts, of nearly the same windows and positions, as `WindowBatch.divided`."""
        lengths = self.end[instances] - self.first[instances] - 1
        by_length = np.argsort(lengths, kind="stable")
        rows = [by_length[number::parts] for number in range(parts)]
        return [InstancePart(instances[some], int(lengths[some].sum()) / int(lengths.sum())) for some in rows]

    def state(self) -> dict[str, AnyArray]:
        """Nothing: a batch depends on the numbers of its windows and the epoch alone."""
        return {}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """There is nothing to remember."""
