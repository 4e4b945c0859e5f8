"""The choice of targets among the next interactions after a history."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from beamtree.config import TrainingSettings
from beamtree.data.sequences import Sequences
from beamtree.training.randomness import draws_below
from beamtree.types import NOTHING, Float32Array, Int32Array, Int64Array


@dataclass(frozen=True)
class TargetHorizon:
    """Targets are drawn uniformly from the next `length` interactions that may be targets; 1: the very next.

    each: number of targets per instance, consecutive in the sequence, which wraps around. A draw depends on seed, epoch
    and the number of the instance.
    """

    length: int = 1
    each: int = 1
    seed: int = 0

    @classmethod
    def of(cls, settings: TrainingSettings, *, seed: int) -> Self:
        """The horizon that the settings name; the seed may be another than theirs."""
        return cls(settings.target_horizon, each=settings.target_horizon, seed=seed)

    def draw(
        self, sequences: Sequences, following: Int64Array, ends: Int64Array, *, numbers: Int64Array, epoch: int
    ) -> Int64Array:
        """Places of targets (..., each) in the flat sequences, -1 where there are fewer.

        following: (...), where the next item stands; ends: (...), where its span ends.
        """
        places = sequences.target_places
        first, end = following, ends
        if places is not None:
            first, end = np.searchsorted(places, following), np.searchsorted(places, ends)
        choices = np.clip(end - first, 1, self.length)
        ahead = np.zeros_like(choices)
        if self.length > 1:
            ahead = draws_below(choices, numbers=numbers, seed=self.seed, purpose="targets", step=epoch)
        number = np.arange(self.each)
        several = first[..., None] + (ahead[..., None] + number) % choices[..., None]
        exists = number < choices[..., None]
        if places is not None:
            exists &= (first < end)[..., None]
            several = places[np.minimum(several, len(places) - 1)]
        return np.where(exists, several, NOTHING)


def items_at(sequences: Sequences, places: Int64Array) -> Int32Array:
    """The items at places of the flat sequences, -1 where a place is -1."""
    return np.where(places != NOTHING, sequences.items[places], np.int32(NOTHING))


def weights_at(sequences: Sequences, places: Int64Array, *, scale: float) -> Float32Array | None:
    """What the interactions at places count, times a scale, 0 where a place is -1; None where all count 1."""
    if sequences.weights is None:
        return None
    weights = sequences.weights[places] * np.float32(scale)
    return np.where(places != NOTHING, weights, np.float32(0.0))


def mean_weight(sequences: Sequences, following: Int64Array, ends: Int64Array) -> float:
    """The mean weight of the interactions that may be targets in spans following .. end - 1; 1 where there are none."""
    if sequences.weights is None:
        return 1.0
    running = np.concatenate([[0.0], np.cumsum(sequences.weights, dtype=np.float64)])
    total, count = (running[ends] - running[following]).sum(), sequences.count_targets(following, ends).sum()
    return float(total / count) if total > 0.0 else 1.0
