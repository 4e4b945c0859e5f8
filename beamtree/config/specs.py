"""What a setting names in one word: the network, the schedule and the encoder as we fit them, or as published.

A setting of this kind takes "default", "published", or a table with those fields that differ from the default; in
Python also the object itself. A model records all fields.
"""

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
EmbeddingInit = Literal["cooccurrence", "random"]


class Spec(BaseModel):
    """A value with several fields; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class NetworkSpec(Spec):
    """The attention network beside its sizes.

    windows: lengths of the time windows, oldest first; stretched where `model.history_length` is another than their
    sum. attention_hidden: width of the attention unit. normalisation: between each hidden layer and its activation.
    dropout: on the first hidden layer, while training. history_table: whether history items have an embedding table of
    their own, or are read as their ancestors on the scored level. embedding_init: a truncated SVD of the user-item
    matrix, nodes as the mean of the items below; or random.
    """

    windows: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = Field(
        (10, 5, 2, 1, 1, 1), min_length=1, max_length=1000
    )
    attention_hidden: int = Field(16, ge=1, le=512)
    normalisation: Literal["none", "layer", "batch"] = "none"
    dropout: Share = 0.0
    history_table: Literal["separate", "shared"] = "separate"
    embedding_init: EmbeddingInit = "cooccurrence"


class TrainingSchedule(Spec):
    """How the attention network is trained, beside the length of the training and its learning rate.

    optimiser: adamw has decoupled weight decay; adam adds it to the gradient. warmup_steps: linear, at most a tenth of
    all steps. decay: of the learning rate after the warm-up. clip_norm: the largest norm of the network's gradients.
    validations: evenly spaced in each round; patience: validations in a row without a better one that end a round;
    validation_users: asked by each validation. checkpoint_minutes: between checkpoints, besides one at each validation.
    """

    optimiser: Literal["adamw", "adam"] = "adamw"
    weight_decay: float = Field(1e-4, ge=0.0, le=1.0)
    warmup_steps: int = Field(200, ge=0)
    decay: Literal["cosine", "exponential", "constant"] = "cosine"
    clip_norm: float = Field(5.0, gt=0.0)
    validations: int = Field(10, ge=1, le=10_000)
    patience: int = Field(4, ge=1)
    validation_users: int = Field(1000, ge=1)
    checkpoint_minutes: float = Field(2.0, ge=0.0)


class EncoderRecipe(Spec):
    """The sequence encoder beside its width, and how it is trained beside the length of the training.

    layers: recurrent layers, or blocks of self-attention; None: 1, or 2. negatives: of the sampled softmax per step,
    half of them drawn by frequency; all: the softmax is over all items; auto: over all of up to 10,000 items, else
    1,000 draws. batch_positions: positions of training sequences per step; None: 1,600, or 800 where negatives are
    drawn. decay: of the learning rate after a short warm-up. validations, patience: as in `TrainingSchedule`.
    """

    layers: Annotated[int, Field(ge=1, le=16)] | None = None
    dropout: Share = 0.2
    embedding_init: EmbeddingInit = "cooccurrence"
    negatives: Annotated[int, Field(ge=1)] | Literal["auto", "all"] = "auto"
    batch_positions: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    decay: Literal["cosine", "constant"] = "cosine"
    validations: int = Field(8, ge=1, le=10_000)
    patience: int = Field(3, ge=1)


PUBLISHED_NETWORK = NetworkSpec(
    windows=(20, 20, 10, 10, 2, 2, 2, 1, 1, 1),
    attention_hidden=36,
    normalisation="batch",
    dropout=0.1,
    history_table="shared",
    embedding_init="random",
)
PUBLISHED_SCHEDULE = TrainingSchedule(
    optimiser="adam", weight_decay=1e-2, warmup_steps=5000, decay="exponential", patience=100
)
PUBLISHED_ENCODER = EncoderRecipe(
    layers=4,
    embedding_init="random",
    negatives="all",
    batch_positions=64 * 69,
    decay="constant",
    validations=30,
)


def _named(value: Any, specs: Mapping[str, Spec]) -> Any:
    """The spec of a name; other values are validated later."""
    if not isinstance(value, str):
        return value
    if value not in specs:
        raise ValueError(f"expected {' or '.join(map(repr, specs))}, or a table of its fields")
    return specs[value]


NETWORKS: dict[str, Spec] = {"default": NetworkSpec(), "published": PUBLISHED_NETWORK}
SCHEDULES: dict[str, Spec] = {"default": TrainingSchedule(), "published": PUBLISHED_SCHEDULE}
ENCODER_RECIPES: dict[str, Spec] = {"default": EncoderRecipe(), "published": PUBLISHED_ENCODER}

Network = Annotated[NetworkSpec, BeforeValidator(lambda value: _named(value, NETWORKS))]
Schedule = Annotated[TrainingSchedule, BeforeValidator(lambda value: _named(value, SCHEDULES))]
Recipe = Annotated[EncoderRecipe, BeforeValidator(lambda value: _named(value, ENCODER_RECIPES))]


def stretched(windows: tuple[int, ...], length: int) -> tuple[int, ...]:
    """Windows in the same proportions for a history of another length, the older ones longer, none of them empty.

    (10, 5, 2, 1, 1, 1) for 40 items is (20, 10, 4, 2, 2, 2), and for 6 items (3, 1, 1, 1).
    """
    total = sum(windows)
    if total == length:
        return windows
    ends = [(2 * end * length + total) // (2 * total) for end in accumulate(reversed(windows))]
    lengths = [end - start for start, end in pairwise([0, *ends])]
    return tuple(sorted((window for window in lengths if window), reverse=True))


def shown(value: Any) -> Any:
    """A value as displayed: a spec by its name, or by the fields that differ from the default."""
    if not isinstance(value, Spec):
        return value
    for specs in (NETWORKS, SCHEDULES, ENCODER_RECIPES):
        for name, spec in specs.items():
            if value == spec:
                return name
    return value.model_dump(mode="json", exclude_defaults=True)
