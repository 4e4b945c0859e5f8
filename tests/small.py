"""Small trees, models and logs that several test files share."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from pydantic import BaseModel

from beamtree.config import Config, EncoderRecipe, EstimatorSettings, ModelSettings, NetworkSpec, TrainingSchedule
from beamtree.config.loading import merge
from beamtree.data.interactions import InteractionLog
from beamtree.data.requests import Histories, Requests
from beamtree.data.sequences import Sequences
from beamtree.model.attention import Attention, make_attention
from beamtree.model.part import Part, PreparedPart, ReadRows
from beamtree.model.score import Score
from beamtree.model.torch_scorer import TorchScorer
from beamtree.tree.build import plant, random_order
from beamtree.tree.item_tree import ItemTree

Arrays = dict[str, npt.NDArray[Any]]
SPECS: dict[str, tuple[str, type[BaseModel]]] = {
    "model": ("network", NetworkSpec),
    "training": ("schedule", TrainingSchedule),
    "estimator": ("recipe", EncoderRecipe),
}
Ragged = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]


def ragged(lists: list[list[int]]) -> Ragged:
    """Lists as (flat, offsets)."""
    flat = np.array([item for entry in lists for item in entry], dtype=np.int32)
    return flat, np.cumsum([0] + [len(entry) for entry in lists], dtype=np.int64)


def sequences_of(lists: list[list[int]]) -> Sequences:
    """One sequence of dense items per list."""
    return Sequences(*ragged(lists))


def random_tree(num_items: int, *, branching: int, seed: int, num_leaves: int | None = None) -> ItemTree:
    """A tree with its items in random order."""
    order = random_order(num_items, generator=np.random.default_rng(seed))
    return plant(order, branching=branching, num_leaves=num_leaves)


def model_settings(**changes: Any) -> ModelSettings:
    """A network of a few numbers: histories of five items in three windows."""
    sizes: dict[str, Any] = {
        "embedding_dim": 4,
        "windows": (2, 2, 1),
        "attention_hidden": 3,
        "layers": (6, 5, 3),
        "history_table": "shared",
    }
    return ModelSettings.model_validate(nested({"model": sizes | changes})["model"])


def encoder_settings(**changes: Any) -> EstimatorSettings:
    """Settings of the encoder; fields of its recipe are given beside them."""
    return EstimatorSettings.model_validate(nested({"estimator": changes})["estimator"])


def nested(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Sections with the fields of network, schedule and recipe where they belong, wherever they were given."""
    found = {}
    for section, values in sections.items():
        name, spec = SPECS.get(section, ("", BaseModel))
        known = spec.model_fields
        inner = {key: value for key, value in values.items() if key in known}
        outer = {key: value for key, value in values.items() if key not in inner}
        found[section] = outer | ({name: {**outer.get(name, {}), **inner}} if inner else {})
    return found


def fresh_attention(settings: ModelSettings, tree: ItemTree, *, seed: int) -> Attention:
    """Attention as training begins with it, on the levels that the settings name."""
    return make_attention(tree, Config(model=settings), torch.Generator().manual_seed(seed))


def score_of(attention: Attention) -> Score:
    """A score of attention alone."""
    return Score(attention.tree, {"attention": attention})


def stirred_model(settings: ModelSettings, tree: ItemTree, *, seed: int) -> Attention:
    """Attention in evaluation mode in which no weight, bias, slope or running statistic has its special first value."""
    model = fresh_attention(settings, tree, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor += 0.3 * torch.rand(tensor.shape, generator=generator)
    return model.eval()


class PlainAttention(Part):
    """Attention by the formulas as they read: the judge of the factored form, of the kernels and of every search."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def prepare(self, requests: Requests, *, read: ReadRows, dropout: torch.Generator | None) -> PreparedPart:
        """Read the tables plainly, whatever `read` is."""
        del read
        model = self.attention
        items = requests.histories.latest(model.settings.attention_history)
        offsets = None if model.offset is None else model.offset.of_requests(requests)
        table = model.node_table if model.item_table is None else model.item_table

        def scores(levels: Sequence[int], nodes: torch.Tensor) -> torch.Tensor:
            rows = torch.from_numpy(np.concatenate([model.history_rows(items, level) for level in levels]))
            node_rows = nodes.flatten(0, 1)
            found: torch.Tensor = model(
                table[rows.clamp(min=0)],
                model.node_table[node_rows.clamp(min=0)],
                present=rows >= 0,
                offsets=None if offsets is None else offsets.repeat(len(levels), 1),
                candidates=node_rows >= 0,
                dropout_generator=dropout,
            )
            return found.reshape(nodes.shape)

        return scores


def plain_scores(
    model: Attention, history: npt.NDArray[np.int32]
) -> Callable[[int, npt.NDArray[np.int64]], npt.NDArray[np.float32]]:
    """How the plain network scores nodes (n,) of a level for one history (positions,), -1 in front."""
    scorer = TorchScorer(Score(model.tree, {"attention": PlainAttention(model)}))
    return partial(scorer.prepare(Requests(Histories.of_rows(history[None]))).scores, 0)


def weights_of(model: torch.nn.Module) -> Arrays:
    """Copies of all arrays of a model."""
    return {name: tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()}


def random_histories(
    requests: int, *, length: int, num_items: int, generator: np.random.Generator
) -> npt.NDArray[np.int32]:
    """Histories of random lengths, the empty and the full one among them where there is room, padded in front."""
    histories = generator.integers(0, num_items, size=(requests, length)).astype(np.int32)
    present = generator.integers(0, length + 1, size=requests)
    present[:2] = [0, length][:requests]
    histories[np.arange(length) < length - present[:, None]] = -1
    return histories


def assert_same_bytes(left: Arrays, right: Arrays) -> None:
    """Same names, types, shapes and bytes."""
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert array.dtype == right[name].dtype, name
        assert array.shape == right[name].shape, name
        assert array.tobytes() == right[name].tobytes(), name


def two_group_log(*, users_per_group: int = 24, items_per_group: int = 10, length: int = 16) -> InteractionLog:
    """Users a* only ever touch items a*, users b* items b*: whoever has seen one group belongs to it."""
    generator = np.random.default_rng(0)
    rows: list[tuple[str, str, int]] = []
    for group in "ab":
        for user in range(users_per_group):
            items = generator.integers(0, items_per_group, size=length)
            rows += [(f"{group}{user:02}", f"{group}{item}", time) for time, item in enumerate(items)]
    return InteractionLog(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))


def small_config(**sections: dict[str, Any]) -> Config:
    """Settings that fit a few dozen users in a second: uniform negatives, one target each, the very next item."""
    base: dict[str, dict[str, Any]] = {
        "data": {"min_interactions": 2, "min_held_out": 2},
        "model": {
            "parts": ["attention", "memory"],
            "embedding_dim": 4,
            "windows": [2, 2, 1],
            "attention_hidden": 3,
            "layers": [8, 6, 4],
        },
        "training": {
            "method": "dtr-u",
            "target_horizon": 1,
            "negatives": 3,
            "batch_size": 16,
            "epochs": 1,
            "learning_rate": 0.01,
            "warmup_steps": 0,
        },
        "decided": {"shuffle_ties": False, "history_length": 5},
        "retrieval": {"beam_width": 8, "exclude_seen": True},
    }
    return Config.resolve(merge(nested(base), nested(sections)))
