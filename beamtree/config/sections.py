"""Settings of the tree, the score, the trainings and the search."""

import math
from typing import Annotated, Literal

from pydantic import Field

from beamtree.config.data_sections import DataSettings, LogSettings
from beamtree.config.section import Section, decided
from beamtree.config.specs import (
    EncoderRecipe,
    Network,
    NetworkSpec,
    Recipe,
    Schedule,
    TrainingSchedule,
    stretched,
)

PartName = Literal["attention", "tower", "memory"]
EncoderKind = Literal["gru", "self-attention"]
MAX_EPOCHS = 1000.0
MAX_ITEMS_SCORED, DRAWN_NEGATIVES = 10_000, 1_000
POSITIONS_OVER_ALL, POSITIONS_OVER_SAMPLE = 1_600, 800
COUNT_WEIGHTS = ("transitions", "company", "popularity")
FADES = ("fade", "repeat_fade")
FIXED_WEIGHTS = ("tower", *COUNT_WEIGHTS, "repeats", *FADES, "balance", "trend")
"""What `model.weights` can fix: weights of the tower and of counted evidence, how evidence fades with its age, and how
far popular items are held back in company."""


class TreeSettings(Section):
    """The shape of the tree and the first order of its leaves."""

    branching: int = Field(2, ge=2, le=10, description="children of an inner node")
    order: Literal["auto", "random", "category", "clustering"] = Field(
        "auto", description="first order of the leaves; auto: clustering unless very large"
    )
    placement: Literal["auction", "published"] = Field(
        "auction", description="of items that compete for a node: auction; or as published"
    )


class ModelSettings(Section):
    """The parts of the score, and the sizes of the attention network (DIN with time windows)."""

    parts: tuple[PartName, ...] = Field(
        ("tower", "memory"),
        min_length=1,
        description="summands of the score: attention, tower, memory",
    )
    weights: dict[str, float] = Field({}, description="weights to fix instead of calibrating: tower, transitions, ...")
    history_length: int | None = Field(
        None, ge=1, le=10_000, description="latest items read; default: by the log, attention 20"
    )
    memory_megabytes: float = Field(400.0, gt=0.0, description="memory's lists of all items; the longest are cut first")
    embedding_dim: int = Field(24, ge=1, le=512, description="attention: size of a node's embedding")
    layers: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        (64, 32, 16), min_length=1, max_length=16, description="attention: widths of the hidden layers"
    )
    attention_levels: int | None = Field(
        None, ge=1, description="attention: only this number of last levels, 1: the leaves"
    )
    network: Network = Field(NetworkSpec(), description="attention: default, published, or fields such as dropout")

    @property
    def windows(self) -> tuple[int, ...]:
        """Lengths of the attention network's time windows, oldest first; they add up to the history that it reads."""
        windows = self.network.windows
        return windows if self.history_length is None else stretched(windows, self.history_length)

    @property
    def attention_history(self) -> int:
        """Number of latest items that the attention network reads."""
        return sum(self.windows)

    def contradictions(self) -> list[str]:
        """Levels that no part would score; weights of nothing, or out of range."""
        found = [*self._faults_of_weights()]
        if self.attention_levels is not None and set(self.parts) == {"attention"}:
            found.append(
                f"model.attention_levels = {self.attention_levels} leaves the levels above without a score, because "
                "attention is the only one of model.parts: add memory or tower to them, or leave attention_levels out"
            )
        return found

    def attention_range(self, height: int) -> range:
        """The levels of a tree of this height that the attention network scores, the leaves always among them."""
        first = 0 if self.attention_levels is None else max(0, height + 1 - self.attention_levels)
        return range(first, height + 1)

    def _faults_of_weights(self) -> list[str]:
        found = []
        for name, value in self.weights.items():
            at = f"model.weights.{name}"
            if name not in FIXED_WEIGHTS:
                found.append(f"{at} is unknown; known: {', '.join(FIXED_WEIGHTS)}")
            elif not math.isfinite(value):
                found.append(f"{at}: expected a finite number, got {value!r}")
            elif name in ("tower", *COUNT_WEIGHTS) and value < 0.0:
                found.append(f"{at}: expected at least 0, got {value!r}")
            elif name in FADES and not 0.0 < value <= 1.0:
                found.append(f"{at}: expected a factor above 0, at most 1, got {value!r}")
            elif name == "balance" and not 0.0 <= value <= 1.0:
                found.append(f"{at}: expected an exponent from 0 to 1, got {value!r}")
            elif name == "trend" and value != 0.0:
                found.append(f"{at}: expected 0, which leaves the trend out, got {value!r}; else it is calibrated")
        return found


class TrainingSettings(Section):
    """Training of the attention network; targets, seed and device apply to the encoder too."""

    method: Literal["dtr-u", "dtr-t", "dtr-t-rl"] = Field(
        "dtr-t", description="negatives: uniform; down the tree; with rectified labels too"
    )
    rounds: int = Field(1, ge=1, le=100, description="times model and tree are learned in turn; 1: the first tree")
    negatives: int = Field(30, ge=1, le=4096, description="negatives per level; smaller levels are taken whole")
    target_horizon: int = Field(
        10, ge=1, le=10_000, description="next interactions that are targets, the encoder's too"
    )
    batch_size: int = Field(128, ge=1, le=65536, description="instances per step")
    epochs: float = Field(3.0, gt=0.0, le=MAX_EPOCHS, description="passes over the training instances in each round")
    max_instances: int | None = Field(1_200_000, ge=1, description="instances per round at most, whatever the epochs")
    learning_rate: float = Field(1e-2, gt=0.0, le=1.0, description="at its peak, after the warm-up")
    schedule: Schedule = Field(
        TrainingSchedule(), description="default, published, or fields such as decay and patience"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="decides every random choice")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "cpu", description="where to learn; auto: on a GPU where torch finds one"
    )

    @property
    def asks_estimator(self) -> bool:
        """Whether labels are rectified by an estimator."""
        return self.method == "dtr-t-rl"


class EstimatorSettings(Section):
    """The sequence encoder of the tower, and the estimator of rectified labels."""

    encoder: EncoderKind = Field("gru", description="gru (GRU4Rec), or self-attention (SASRec)")
    width: int = Field(64, ge=1, le=1024, description="size of an item's embedding")
    item_features: bool = Field(False, description="learn columns of the item table as part of an embedding")
    epochs: float = Field(10.0, gt=0.0, le=MAX_EPOCHS, description="passes over the training sequences")
    max_positions: int | None = Field(6_000_000, ge=1, description="positions at most, whatever the epochs")
    learning_rate: float = Field(3e-3, gt=0.0, le=1.0, description="at its peak, after a short warm-up")
    recipe: Recipe = Field(EncoderRecipe(), description="default, published, or fields such as layers and dropout")

    @property
    def num_layers(self) -> int:
        """What is set, or what suits the encoder."""
        return self.recipe.layers or (1 if self.encoder == "gru" else 2)

    @property
    def heads(self) -> int:
        """Heads of self-attention, which share the width: two where that can be halved."""
        return 1 if self.width % 2 else 2

    def negatives_of(self, num_items: int) -> int | None:
        """Negatives per step for a catalogue of this size; None: all items are scored."""
        asked = self.recipe.negatives
        if asked == "all" or (asked == "auto" and num_items <= MAX_ITEMS_SCORED):
            return None
        drawn = DRAWN_NEGATIVES if asked == "auto" else asked
        return drawn if drawn < num_items else None

    def batch_positions_of(self, num_items: int) -> int:
        """How many positions a step learns from: fewer where a step over a sample of the items costs little else."""
        if self.recipe.batch_positions is not None:
            return self.recipe.batch_positions
        return POSITIONS_OVER_ALL if self.negatives_of(num_items) is None else POSITIONS_OVER_SAMPLE


class RetrievalSettings(Section):
    """How the tree is searched."""

    beam_width: int = Field(150, ge=1, le=1_000_000, description="nodes kept per level; at least the k asked for")
    exclude_seen: bool | None = Field(None, description="leave out seen items; default: where the log rarely repeats")

    @property
    def excludes_seen(self) -> bool:
        """As set, or as decided by the log; SettingsError before that."""
        return decided(self.exclude_seen, name="retrieval.exclude_seen", kind="true or false")


SECTION_TYPES: dict[str, type[Section]] = {
    "log": LogSettings,
    "data": DataSettings,
    "tree": TreeSettings,
    "model": ModelSettings,
    "training": TrainingSettings,
    "estimator": EstimatorSettings,
    "retrieval": RetrievalSettings,
}
