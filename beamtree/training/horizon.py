"""Which of the next interactions after a history are its targets."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from beamtree.config import TrainingSettings
from beamtree.training.randomness import draws_below
from beamtree.types import NOTHING, Int32Array, Int64Array


@dataclass(frozen=True)
class TargetHorizon:
    """Targets are drawn from the next `length` interactions, each that exists being as likely; 1: the very next.

    each: so many of them together, neighbours in the sequence, which is bent to a ring for it. A draw depends on seed,
    epoch and the number of what it is for.
    """

    length: int = 1
    each: int = 1
    seed: int = 0

    @classmethod
    def of(cls, settings: TrainingSettings, *, seed: int) -> Self:
        """The horizon that the settings name; the seed may be another than theirs."""
        return cls(settings.target_horizon, each=settings.targets_per_history, seed=seed)

    def draw(
        self, items: Int32Array, following: Int64Array, ends: Int64Array, *, numbers: Int64Array, epoch: int
    ) -> Int32Array:
        """Targets (..., each) from the flat items, -1 where there are fewer.

        following: (...), where the next item stands; ends: (...), where its span ends.
        """
        choices = np.clip(ends - following, 1, self.length)
        ahead = np.zeros_like(choices)
        if self.length > 1:
            ahead = draws_below(choices, numbers=numbers, seed=self.seed, purpose="targets", step=epoch)
        place = np.arange(self.each)
        several = items[following[..., None] + (ahead[..., None] + place) % choices[..., None]]
        return np.where(place < choices[..., None], several, np.int32(NOTHING))
