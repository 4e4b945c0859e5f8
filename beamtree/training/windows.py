"""Training spans cut into windows: what a sequence encoder learns from, a target after every input."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from beamtree.data.sequences import Sequences, cut_histories
from beamtree.data.split import Split
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import VERY_NEXT
from beamtree.types import NOTHING, AnyArray, Int32Array, Int64Array


class WindowBatch(NamedTuple):
    """Inputs (windows, length), -1 in front, and their targets (windows, length, targets), -1 where there is none."""

    inputs: Int32Array
    targets: Int32Array


@dataclass(frozen=True)
class TrainingWindows:
    """The training spans cut, from their ends, into windows of `length` inputs, each with a target.

    Neighbouring windows share one item, so that every interaction after the first is next in line exactly once.
    Targets before the split's first one are not learned from, except inside later windows, where they are histories.
    first, end: the window's part of the flat items, the last being no input; span_end: where its span ends.
    horizon: how targets are drawn from what follows an input.
    """

    items: Int32Array
    first: Int64Array
    end: Int64Array
    span_end: Int64Array
    length: int
    horizon: TargetHorizon

    @classmethod
    def cut(
        cls, sequences: Sequences, split: Split, *, length: int, horizon: TargetHorizon = VERY_NEXT
    ) -> "TrainingWindows":
        """Windows of all training spans."""
        num_targets = np.maximum(split.train.end - split.train.start - split.first_target, 0)
        num_windows = -(-num_targets // length)
        start, span_end = (np.repeat(bound, num_windows) for bound in (split.train.start, split.train.end))
        first_window = np.cumsum(num_windows) - num_windows
        from_the_end = np.arange(len(start)) - np.repeat(first_window, num_windows)
        end = span_end - length * from_the_end
        first = np.maximum(start, end - length - 1)
        return cls(sequences.items, first, end, span_end, length, horizon)

    def __len__(self) -> int:
        return len(self.first)

    def counts(self, num_items: int) -> Int64Array:
        """How often each item (items,) is next in line."""
        begun = np.bincount(self.first + 1, minlength=len(self.items) + 1)
        ended = np.bincount(self.end, minlength=len(self.items) + 1)
        times_wanted = np.cumsum(begun - ended)[:-1]
        return np.bincount(self.items, weights=times_wanted, minlength=num_items).astype(np.int64)

    def batch(self, instances: Int64Array, *, epoch: int = 0) -> WindowBatch:
        """The numbered windows, with targets as drawn in an epoch."""
        first, end = self.first[instances], self.end[instances]
        inputs = cut_histories(self.items, starts=first, ends=end - 1, length=self.length)
        position = end[:, None] - self.length + np.arange(self.length)
        ends = np.broadcast_to(self.span_end[instances][:, None], position.shape)
        targets = self.horizon.draw(self.items, np.maximum(position, 0), ends, numbers=position, epoch=epoch)
        return WindowBatch(inputs, np.where((inputs >= 0)[:, :, None], targets, np.int32(NOTHING)))

    def state(self) -> dict[str, AnyArray]:
        """Nothing: a batch depends on the numbers of its windows and the epoch alone."""
        return {}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """There is nothing to remember."""
