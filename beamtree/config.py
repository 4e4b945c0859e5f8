"""All settings: declared, documented and checked in one place, before any work begins.

A `Config` is frozen. It starts from a preset, then takes a TOML file, then single `section.key=value` settings;
whatever is unknown, out of range or contradictory is reported in one message. The preset "default" is what the fields
declare, so `Config()` is the same; the other presets say where they differ from it.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from beamtree.errors import SettingsError

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
PresetName = Literal["instant", "small", "default", "paper"]
PartName = Literal["attention", "tower", "memory"]
SettingT = TypeVar("SettingT")
MAX_EPOCHS = 1000.0
MOST_ITEMS_SCORED, DRAWN_NEGATIVES = 10_000, 1_000
POSITIONS_OVER_ALL, POSITIONS_OVER_SAMPLE = 1_600, 800


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def contradictions(self) -> list[str]:
        """Sentences on settings of this section that cannot hold together."""
        return []


class LogSettings(_Section):
    """How a log is read; kept with the model, so that the same log is read the same way again."""

    columns: dict[str, str] = Field(
        {}, description="our name -> the file's, for user_id, item_id, timestamp, rating, event_type"
    )
    item_columns: dict[str, str] = Field({}, description="our name -> the item table's: item_id, category, title")
    item_features: dict[str, Literal["category", "categories", "number", "vector", "ignore"]] = Field(
        {}, description="column of the item table -> what it is as a feature; default: inferred from its values"
    )
    user_features: dict[str, Literal["category", "categories", "number", "vector", "ignore"]] = Field(
        {}, description="column of the user table -> what it is as a feature; default: inferred from its values"
    )
    context_features: dict[str, Literal["category", "categories", "number", "vector"]] = Field(
        {}, description="column of the log that says in which context somebody acts -> what it is as a feature"
    )
    min_rating: float | None = Field(None, description="keep rows rated at least so")
    event_type: dict[str, list[str]] = Field({}, description="column -> values: keep rows that have one of them")
    since: str | float | None = Field(None, description="keep rows from this moment on")
    until: str | float | None = Field(None, description="keep rows before this moment")
    event_weights: dict[str, Annotated[float, Field(ge=0.0, allow_inf_nan=False)]] = Field(
        {}, description="event type -> what such a row counts as a target, 0: it is left out; default: 1 each"
    )
    target_events: tuple[str, ...] = Field(
        (), description="event types that are recommended and evaluated, all others are history; default: all"
    )
    half_life_days: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = Field(
        None, description="a row counts half as much as one so many days later; default: age does not matter"
    )
    bad_rows: Literal["error", "skip"] = Field("error", description="stop at a bad row, or leave it out and list it")
    row_order: bool = Field(False, description="the log has no timestamps: its rows stand in the order of time")

    def contradictions(self) -> list[str]:
        """Times asked of a log that is read without them; targets that count nothing."""
        given = {
            "since": self.since,
            "until": self.until,
            "half_life_days": self.half_life_days,
            "columns.timestamp": self.columns.get("timestamp"),
        }
        found = [
            f"log.{name} is about timestamps, log.row_order = true reads none: leave one of them out"
            for name, value in given.items()
            if self.row_order and value is not None
        ]
        if self.event_weights and not any(self.event_weights.values()):
            found.append(
                "log.event_weights are all 0: nothing would be left of the log; give some type a weight above 0"
            )
        weightless = [name for name in self.target_events if self.event_weights and not self.event_weights.get(name)]
        if weightless:
            found.append(
                f"log.target_events has {weightless[0]!r}, which has no weight above 0 in log.event_weights: add it"
            )
        return found


class DataSettings(_Section):
    """What of the log is used, and for what."""

    min_interactions: int = Field(2, ge=2, description="users with fewer interactions are dropped")
    min_held_out: int | None = Field(
        None,
        ge=1,
        description="users with fewer interactions are learned from, but never held out; default: 15, or what the 100 "
        "longest users have where fewer than 100 have 15",
    )
    holdout: Literal["users", "last", "time", "none"] = Field(
        "users", description="held-out users; everyone's last item; everything after a moment; nothing"
    )
    protocol: Literal["clean", "paper"] = Field(
        "clean", description="details of split and metrics; 'paper' as published"
    )
    validation_share: Share = Field(0.1, description="share of users (or, by time, of interactions) to choose by")
    test_share: Share = Field(0.1, description="share of users (or, by time, of interactions) to report on")
    split_seed: int | None = Field(None, ge=0, lt=2**32, description="decides who is held out; default: training.seed")
    catalogue: Literal["log", "items"] = Field("log", description="items of the log, or all of the item table")
    shuffle_ties: bool | None = Field(
        None,
        description="shuffle rows that share user and time, by the split's seed; default: where they are sorted by "
        "item, unless protocol is 'paper'",
    )

    @property
    def decided_min_held_out(self) -> int:
        """What a fit decided, or was told; SettingsError where nobody has decided yet."""
        return _decided(self.min_held_out, name="data.min_held_out", kind="a number of interactions")

    def contradictions(self) -> list[str]:
        """Holding out more than everything, or a protocol that knows only one kind of holdout."""
        found = []
        if self.validation_share + self.test_share >= 1.0:
            found.append("data.validation_share + data.test_share must stay below 1: nothing would be left to train on")
        if self.protocol == "paper" and self.holdout not in ("users", "none"):
            found.append(
                f"data.protocol = 'paper' holds out users, data.holdout = '{self.holdout}' does not: change one of them"
            )
        return found


class TreeSettings(_Section):
    """The shape of the tree and the first order of its leaves."""

    branching: int = Field(2, ge=2, le=10, description="children of an inner node")
    order: Literal["auto", "random", "category", "clustering"] = Field(
        "auto", description="first order of the leaves; auto: clustering, or category or random for very many items"
    )
    placement: Literal["auction", "published"] = Field(
        "auction",
        description="where rounds put items that compete for a node: near-optimal balanced assignment by auction; "
        "published: items that stay go first, and embeddings stay with their leaf",
    )


class ModelSettings(_Section):
    """The parts of the score, and the sizes of the attention network (DIN with time windows)."""

    parts: tuple[PartName, ...] = Field(
        ("tower", "memory"),
        min_length=1,
        description="what is added up to a score: the attention network of the paper; a sequence encoder and a vector "
        "for each node; counted memory",
    )
    embedding_dim: int = Field(24, ge=1, le=512, description="size of a node's vector")
    windows: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = Field(
        (10, 5, 2, 1, 1, 1),
        min_length=1,
        max_length=1000,
        description="lengths of the time windows, oldest first; they add up to the history",
    )
    attention_hidden: int = Field(16, ge=1, le=512, description="width of the attention unit")
    layers: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        (64, 32, 16), min_length=3, max_length=3, description="hidden widths"
    )
    attention_levels: int | None = Field(
        None,
        ge=1,
        description="the attention network scores, and is trained on, the last so many levels, 1: the leaves; default: "
        "all of them",
    )
    normalisation: Literal["none", "layer", "batch"] = Field(
        "none", description="between each hidden layer and its activation"
    )
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        0.0, description="on the first hidden layer, while training"
    )
    history_table: Literal["separate", "shared"] = Field(
        "separate",
        description="history items from a table of their own, or as their ancestors on the scored level, as published",
    )
    first_vectors: Literal["cooccurrence", "random"] = Field(
        "cooccurrence",
        description="items start from who interacted with what, nodes from the mean of the items below; or at random, "
        "as published",
    )

    @property
    def history_length(self) -> int:
        """How many of the latest items are read."""
        return sum(self.windows)

    def contradictions(self) -> list[str]:
        """Levels that no part would score."""
        if self.attention_levels is not None and set(self.parts) == {"attention"}:
            return [
                f"model.attention_levels = {self.attention_levels} leaves the levels above without a score, because "
                "attention is the only one of model.parts: add memory or tower to them, or leave attention_levels out"
            ]
        return []

    def attention_range(self, height: int) -> range:
        """The levels of a tree of this height that the attention network scores, the leaves always among them."""
        first = 0 if self.attention_levels is None else max(0, height + 1 - self.attention_levels)
        return range(first, height + 1)


class MemorySettings(_Section):
    """Counted evidence: what followed what, what a person had, what is popular."""

    followers: int = Field(
        200, ge=1, le=100_000, description="length of each item's lists: what followed it, what shares users with it"
    )
    megabytes: float = Field(
        400.0, gt=0.0, description="the lists of all items take at most so much; longer ones are cut first"
    )
    window: int = Field(20, ge=1, le=1000, description="an item follows another within so many interactions")
    transitions: float | None = Field(
        None, ge=0.0, description="weight of what followed the history; default: calibrated on validation users"
    )
    company: float | None = Field(
        None, ge=0.0, description="weight of what shares users with the history; default: calibrated"
    )
    repeats: float | None = Field(
        None, description="weight of own repeats, negative against them; default: calibrated, 0 where seen are excluded"
    )
    popularity: float | None = Field(None, ge=0.0, description="weight of popularity; default: calibrated")
    trend: bool = Field(
        True,
        description="weigh what is popular of late: at updates, and in fits that hold out what came after a moment",
    )
    fade: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        None, description="weight of a history item relative to the next later one; default: calibrated"
    )
    repeat_fade: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        None, description="the same for a person's own earlier interactions with an item; default: calibrated"
    )


class TrainingSettings(_Section):
    """How the preference model is learned."""

    method: Literal["dtr-u", "dtr-t", "dtr-t-rl"] = Field(
        "dtr-t", description="uniform negatives; negatives drawn down the tree; these with rectified labels"
    )
    rounds: int = Field(
        1, ge=1, le=100, description="how often model and tree are learned in turn; 1 keeps the first tree"
    )
    negatives: int = Field(30, ge=1, le=4096, description="negatives per level; smaller levels are taken whole")
    batch_size: int = Field(128, ge=1, le=65536, description="instances per step")
    epochs: float = Field(
        3.0, gt=0.0, le=MAX_EPOCHS, description="passes over the training instances in each round; fractions are fine"
    )
    target_horizon: int = Field(
        10,
        ge=1,
        le=10_000,
        description="a target is drawn from the next so many interactions after the history: anew in each epoch, or "
        "once per round where labels are rectified; the estimator draws in each epoch; 1: the very next",
    )
    targets_per_history: int = Field(
        10,
        ge=1,
        le=1000,
        description="so many of these are targets at once and share the history's negatives; the estimator's too",
    )
    most_instances: int | None = Field(
        1_200_000, ge=1, description="a round ends after so many instances, however many epochs that is"
    )
    optimiser: Literal["adamw", "adam"] = Field(
        "adamw", description="adamw: decoupled decay; adam: decay added to the gradient"
    )
    learning_rate: float = Field(1e-2, gt=0.0, le=1.0, description="at its peak, after the warm-up")
    warmup_steps: int = Field(200, ge=0, description="steps of linear warm-up; at most a tenth of all steps is used")
    decay: Literal["cosine", "exponential", "constant"] = Field(
        "cosine", description="of the learning rate after warm-up"
    )
    weight_decay: float = Field(1e-4, ge=0.0, le=1.0, description="on the rows and weights that a step touches")
    clip_norm: float = Field(5.0, gt=0.0, description="gradients of the network are scaled down to this norm")
    validations: int = Field(10, ge=1, le=10_000, description="how often to validate in each round, evenly spaced")
    validation_users: int = Field(1000, ge=1, description="how many of the validation users each validation asks")
    patience: int = Field(4, ge=1, description="stop after so many validations without a better one")
    checkpoint_minutes: float = Field(
        2.0, ge=0.0, description="time between checkpoints, besides one at each validation"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="decides every random choice")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "cpu", description="where to learn, the estimator too; auto: on a GPU where torch finds one"
    )

    def contradictions(self) -> list[str]:
        """More targets than are looked at."""
        if self.targets_per_history <= self.target_horizon:
            return []
        return [
            f"training.targets_per_history = {self.targets_per_history} are taken from the next "
            f"training.target_horizon = {self.target_horizon} interactions: raise the horizon, or take fewer"
        ]

    @property
    def asks_estimator(self) -> bool:
        """Whether an estimator rectifies the labels."""
        return self.method == "dtr-t-rl"


EncoderKind = Literal["gru", "self-attention"]


class EstimatorSettings(_Section):
    """The sequence encoder: the tower of the score, and what tells rectified labels the likeliest item below a node."""

    encoder: EncoderKind = Field(
        "gru", description="how a history is read: by a recurrent network (GRU4Rec's), or by self-attention (SASRec's)"
    )

    history_length: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="so many of the latest items are read; default: what 95 % of the users have, from 10 to 40",
    )
    width: int = Field(64, ge=1, le=1024, description="size of an item's vector")
    layers: int | None = Field(
        None, ge=1, le=16, description="recurrent layers, or blocks of self-attention; default: 1, or 2"
    )
    heads: int = Field(2, ge=1, le=64, description="of self-attention; they share the width")
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(0.2, description="while training")
    first_vectors: Literal["cooccurrence", "random"] = Field(
        "cooccurrence", description="items start from who interacted with what, or at random, as published"
    )
    item_features: bool = Field(
        False, description="what the columns of the item table say of an item is learned as a part of its vector"
    )
    negatives: Annotated[int, Field(ge=1)] | Literal["auto", "all"] = Field(
        "auto",
        description="sampled-softmax negatives per step, half of them drawn by frequency; all: the softmax is over all "
        "items; auto: over all of up to 10,000 items, else 1,000 draws",
    )
    epochs: float = Field(
        10.0,
        gt=0.0,
        le=MAX_EPOCHS,
        description="at most so many passes over the training sequences; fractions are fine",
    )
    most_positions: int | None = Field(
        6_000_000, ge=1, description="at most so many positions are learned from, however many epochs that is"
    )
    batch_positions: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="positions of training sequences per step; default: 1,600, or 800 where negatives are drawn",
    )
    learning_rate: float = Field(3e-3, gt=0.0, le=1.0, description="at its peak, after a short warm-up")
    decay: Literal["cosine", "constant"] = Field("cosine", description="of the learning rate after warm-up")
    validations: int = Field(8, ge=1, le=10_000, description="how often to validate, evenly spaced")
    patience: int = Field(3, ge=1, description="stop after so many validations without a better one")
    weight: float | None = Field(
        None, ge=0.0, description="what the tower counts in the score; default: calibrated on validation users"
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=2**32,
        description="its own, so that runs with other seeds can share it; default: training.seed",
    )

    @property
    def decided_history_length(self) -> int:
        """What a fit decided, or was told; SettingsError where nobody has decided yet."""
        return _decided(self.history_length, name="estimator.history_length", kind="a number of items")

    @property
    def num_layers(self) -> int:
        """What is set, or what suits the encoder."""
        return self.layers or (1 if self.encoder == "gru" else 2)

    def negatives_of(self, num_items: int) -> int | None:
        """How many negatives are drawn per step from a catalogue of so many items; None: all items are scored."""
        if self.negatives == "all" or (self.negatives == "auto" and num_items <= MOST_ITEMS_SCORED):
            return None
        drawn = DRAWN_NEGATIVES if self.negatives == "auto" else self.negatives
        return drawn if drawn < num_items else None

    def batch_positions_of(self, num_items: int) -> int:
        """How many positions a step learns from: fewer where a step over a sample of the items costs little else."""
        if self.batch_positions is not None:
            return self.batch_positions
        return POSITIONS_OVER_ALL if self.negatives_of(num_items) is None else POSITIONS_OVER_SAMPLE

    def contradictions(self) -> list[str]:
        """Heads that do not share the width evenly."""
        if self.encoder == "self-attention" and self.width % self.heads:
            return [f"estimator.heads = {self.heads} must divide estimator.width = {self.width}"]
        return []


class RetrievalSettings(_Section):
    """How the tree is searched."""

    beam_width: int = Field(150, ge=1, le=1_000_000, description="nodes kept per level; at least the k asked for")
    exclude_seen: bool | None = Field(
        None,
        description="leave out items of the history, unless a call says otherwise; default: where few interactions of "
        "the log repeat an item",
    )

    @property
    def excludes_seen(self) -> bool:
        """What a fit decided, or was told; SettingsError where nobody has decided yet."""
        return _decided(self.exclude_seen, name="retrieval.exclude_seen", kind="true or false")


class Config(_Section):
    """Everything that decides a fit, in sections."""

    log: LogSettings = LogSettings()
    data: DataSettings = DataSettings()
    tree: TreeSettings = TreeSettings()
    model: ModelSettings = ModelSettings()
    memory: MemorySettings = MemorySettings()
    training: TrainingSettings = TrainingSettings()
    estimator: EstimatorSettings = EstimatorSettings()
    retrieval: RetrievalSettings = RetrievalSettings()

    def contradictions(self) -> list[str]:
        """Settings that need scores of attention on all levels, together with attention on the last ones."""
        levels, found = self.model.attention_levels, []
        if levels is not None and self.training.rounds > 1:
            found.append(
                f"training.rounds = {self.training.rounds} learns the tree by scores on all levels, "
                f"model.attention_levels = {levels} has them on the last ones: take one round, or leave the other out"
            )
        return found

    @property
    def split_seed(self) -> int:
        """The seed that decides who is held out, and the order of tied rows that are shuffled."""
        return self.training.seed if self.data.split_seed is None else self.data.split_seed

    @classmethod
    def preset(cls, name: PresetName, **sections: Mapping[str, Any]) -> Self:
        """A named starting point; sections override it.

        instant: counted memory alone, seconds; small: minutes; default: under an hour for a million interactions on two
        cores; paper: the published sizes, method and schedule, 80,000 steps in each of 12 rounds.
        """
        if name not in PRESETS:
            raise SettingsError(f"There is no preset {name!r}. Choose one of: {', '.join(PRESETS)}.")
        return cls.resolve(_merge(PRESETS[name], sections))

    @classmethod
    def load(
        cls,
        *,
        preset: PresetName = "default",
        file: Path | None = None,
        assignments: Iterable[str] = (),
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Self:
        """Preset, then a TOML file, then `section.key=value` assignments, then overrides; the later one wins."""
        if preset not in PRESETS:
            raise SettingsError(f"There is no preset {preset!r}. Choose one of: {', '.join(PRESETS)}.")
        raw = PRESETS[preset]
        if file is not None:
            raw = _merge(raw, _read_toml(file))
        for assignment in assignments:
            raw = _merge(raw, _parse_assignment(assignment))
        return cls.resolve(_merge(raw, overrides or {}))

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> Self:
        """Settings that were written down in full, maybe by an earlier version.

        It did not have all of today's settings, and it may have taken some together that are refused now.
        """
        known = _without_forgotten(_merge(_BEFORE_RECORDED, settings))
        return cls.resolve(_renamed(known), refuse_contradictions=False)

    @classmethod
    def resolve(cls, raw: Mapping[str, Any], *, refuse_contradictions: bool = True) -> Self:
        """Check every section, then what they say together; one SettingsError lists all that is wrong."""
        faults: list[str] = []
        sections: dict[str, _Section] = {}
        for name, values in raw.items():
            if name not in cls.model_fields:
                faults.append(_unknown(name, known=cls.model_fields))
            elif not isinstance(values, Mapping):
                faults.append(f"{name} is a section of settings, not a value: write {name}.key=value")
            else:
                section_type = SECTION_TYPES[name]
                try:
                    sections[name] = section_type(**values)
                except ValidationError as error:
                    faults.extend(
                        _describe(fault, section=name, known=section_type.model_fields) for fault in error.errors()
                    )
        if refuse_contradictions:
            for section in sections.values():
                faults.extend(section.contradictions())
            faults.extend(cls.model_validate(sections).contradictions())
        if faults:
            listing = "\n".join(f"  - {fault}" for fault in faults)
            raise SettingsError(f"{len(faults)} setting{'s' if len(faults) > 1 else ''} cannot be used:\n{listing}")
        return cls.model_validate(sections)


SECTION_TYPES: dict[str, type[_Section]] = {
    "log": LogSettings,
    "data": DataSettings,
    "tree": TreeSettings,
    "model": ModelSettings,
    "memory": MemorySettings,
    "training": TrainingSettings,
    "estimator": EstimatorSettings,
    "retrieval": RetrievalSettings,
}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "instant": {"model": {"parts": ["memory"]}},
    "small": {
        "training": {"most_instances": 150_000, "validations": 3},
        "estimator": {"most_positions": 2_000_000, "validations": 3},
    },
    "default": {},
    "paper": {
        "data": {"min_interactions": 15, "protocol": "paper"},
        "tree": {"order": "category", "placement": "published"},
        "model": {
            "parts": ["attention"],
            "windows": [20, 20, 10, 10, 2, 2, 2, 1, 1, 1],
            "attention_hidden": 36,
            "layers": [128, 64, 24],
            "history_table": "shared",
            "first_vectors": "random",
            "normalisation": "batch",
            "dropout": 0.1,
        },
        "training": {
            "negatives": 70,
            "batch_size": 100,
            "method": "dtr-t-rl",
            "rounds": 12,
            "target_horizon": 1,
            "targets_per_history": 1,
            "optimiser": "adam",
            "learning_rate": 1e-3,
            "weight_decay": 1e-2,
            "warmup_steps": 5000,
            "decay": "exponential",
            "epochs": 1000,
            "most_instances": 8_000_000,
            "patience": 100,
            "device": "auto",
        },
        "estimator": {
            "encoder": "self-attention",
            "history_length": 69,
            "width": 24,
            "layers": 4,
            "first_vectors": "random",
            "negatives": "all",
            "epochs": 30,
            "most_positions": None,
            "batch_positions": 64 * 69,
            "learning_rate": 1e-3,
            "decay": "constant",
            "validations": 30,
        },
    },
}

# What these were before they could be set, for settings that were recorded without them.
_BEFORE_RECORDED = {
    "model": {"first_vectors": "random", "parts": ["attention"]},
    "estimator": {
        "encoder": "self-attention",
        "first_vectors": "random",
        "negatives": "all",
        "most_positions": None,
        "decay": "constant",
        "history_length": 69,
    },
    "training": {"target_horizon": 1, "targets_per_history": 1, "most_instances": None},
    "data": {"shuffle_ties": False, "min_held_out": 1},
    "retrieval": {"exclude_seen": True},
}

# What could be set once and is no setting any more: dropped where it was recorded.
_FORGOTTEN = (
    "tree.assignment",
    "tree.instances_per_item",
    "tree.moved_rows",
    "tree.stride",
    "training.depth_slope",
    "training.path_correction",
    "training.path_mode",
    "training.path_start",
    "training.rectification",
    "training.soft_items",
    "training.soft_share",
)


def _renamed(recorded: dict[str, Any]) -> dict[str, Any]:
    """Settings that had other names or values, or are gone: the estimator counted batches in windows, and scored all
    items and validated every epoch where nothing was said; counted evidence had a power."""
    estimator = dict(recorded["estimator"])
    if estimator["negatives"] is None:
        estimator["negatives"] = "all"
    if "batch_size" in estimator:
        estimator["batch_positions"] = estimator.pop("batch_size") * estimator["history_length"]
        estimator.setdefault("validations", estimator.get("epochs", 30))
    memory = {name: value for name, value in recorded.get("memory", {}).items() if name != "power"}
    return {**recorded, "estimator": estimator, "memory": memory}


def _without_forgotten(recorded: dict[str, Any]) -> dict[str, Any]:
    """Recorded settings without those that are none any more."""
    return {
        section: {name: value for name, value in values.items() if f"{section}.{name}" not in _FORGOTTEN}
        if isinstance(values, Mapping)
        else values
        for section, values in recorded.items()
    }


def _decided(value: SettingT | None, *, name: str, kind: str) -> SettingT:
    """A setting that a log may decide; SettingsError where it is still open. kind: what it is to be, in words."""
    if value is None:
        raise SettingsError(
            f"Expected {name} to be {kind}, but it is still to be decided by a log: fit with DeepTreeRetriever, "
            "prepare the log with prepare_log, or set it."
        )
    return value


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, values in over.items():
        both_sections = isinstance(values, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merge(merged[name], values) if both_sections else values
    return merged


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"Cannot read the settings file {file}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not valid TOML: {error}.") from error


def _parse_assignment(assignment: str) -> dict[str, Any]:
    key, separator, text = assignment.partition("=")
    section, dot, name = key.strip().partition(".")
    if not (separator and dot and section and name):
        raise SettingsError(f"--set takes section.key=value, such as training.epochs=5; got {assignment!r}.")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    return {section: {name: value}}


def _describe(fault: Any, *, section: str, known: Iterable[str]) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return _unknown(key, known=known, section=section)
    return f"{section}.{key}: {fault['msg'][0].lower()}{fault['msg'][1:]}; got {fault['input']!r}"


def _unknown(name: str, *, known: Iterable[str], section: str = "") -> str:
    prefix = f"{section}." if section else ""
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f"did you mean {prefix}{nearest[0]}?" if nearest else f"known: {', '.join(known)}"
    return f"{prefix}{name} is unknown; {hint}"
