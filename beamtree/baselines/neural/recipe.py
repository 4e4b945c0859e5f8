"""Training recipes of the networks: as published, and with the options of beamtree's own models."""

from dataclasses import dataclass
from typing import Literal

from beamtree.config import Config
from beamtree.training.horizon import TargetHorizon
from beamtree.training.schedule import Decay


@dataclass(frozen=True)
class Recipe:
    """How a network learns.

    history_length: latest items that are read; None = as many as the encoder of the score reads.
    targets: number of interactions after a history that are its targets; 1 = the very next.
    embedding_init: item vectors start at random, or from a truncated SVD of the user-item matrix.
    learning_rates: peaks to choose from by short trials, judged on validation users; the first one without these.
    batch_size: instances per step. epochs: at most; a budget of seconds may end the training earlier.
    validations: evenly spread; patience: validations without an improvement that end the training.
    """

    history_length: int | None
    targets: int
    embedding_init: Literal["random", "svd"]
    learning_rates: tuple[float, ...]
    decay: Decay
    batch_size: int
    epochs: float
    validations: int = 10
    patience: int = 5

    def read_length(self, config: Config) -> int:
        """Latest items that are read under these settings."""
        return config.encoder_history if self.history_length is None else self.history_length

    def horizon(self, *, seed: int) -> TargetHorizon:
        """Which interactions are targets."""
        return TargetHorizon(self.targets, each=self.targets, seed=seed)


AS_PUBLISHED = Recipe(
    history_length=69,
    targets=1,
    embedding_init="random",
    learning_rates=(1e-3,),
    decay="exponential",
    batch_size=100,
    epochs=20.0,
)
"""The settings that the DTR paper gives for all systems; number of epochs and early stopping are left open there."""

TUNED = Recipe(
    history_length=None,
    targets=10,
    embedding_init="svd",
    learning_rates=(3e-3, 1e-2, 1e-3),
    decay="cosine",
    batch_size=256,
    epochs=20.0,
)
"""The options that our own models have."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Settings of one system; each adds sizes of its own. name: as in the registry; width: of an item's vector."""

    name: str
    recipe: Recipe
    width: int
