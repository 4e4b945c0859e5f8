"""DIN: an attention network that scores each item for a history (Zhou et al., KDD 2018).

The network, its learner and its kernels are those of the trees, over a tree of one level: all items below the root. So
DIN differs from DTR(U) in nothing but the index. The DTR paper gives windows over 69 items, an MLP 128-64-2 and 70
negatives. Left open there, and taken here: negatives are drawn uniformly for a sampled softmax; history and
candidates share their vectors; the two outputs, after an activation, are combined linearly.
"""

from dataclasses import dataclass

import numpy as np
import torch

from beamtree.baselines.neural.learning import learn
from beamtree.baselines.neural.recipe import AS_PUBLISHED, TUNED, NetworkSettings
from beamtree.baselines.neural.task import Task, svd_vectors, warm_start_of
from beamtree.baselines.protocol import Budget
from beamtree.config import Config, ModelSettings, NetworkSpec
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.evaluation.answers import ExactScan
from beamtree.fitting.computation import build_learner, learning_device
from beamtree.model.attention import Attention
from beamtree.model.score import ATTENTION, Score
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.training.instances import TrainingInstances
from beamtree.training.randomness import torch_generator
from beamtree.tree.build import plant
from beamtree.types import Float32Array

VALIDATION_SCORES = 20_000_000
"""Scores (users x items) of a validation, at most; but always a hundred users."""


@dataclass(frozen=True, kw_only=True)
class DinSettings(NetworkSettings):
    """windows: lengths, oldest first; layers: of the MLP; negatives: per history."""

    attention_hidden: int
    windows: tuple[int, ...]
    layers: tuple[int, int, int]
    negatives: int


published = DinSettings(
    name="din-published",
    recipe=AS_PUBLISHED,
    width=24,
    attention_hidden=36,
    windows=(20, 20, 10, 10, 2, 2, 2, 1, 1, 1),
    layers=(128, 64, 2),
    negatives=70,
)
tuned = DinSettings(
    name="din",
    recipe=TUNED,
    width=24,
    attention_hidden=16,
    windows=(20, 20, 10, 10, 2, 2, 2, 1, 1, 1),
    layers=(128, 64, 24),
    negatives=70,
)


def train(settings: DinSettings, dataset: Dataset, split: Split, *, budget: Budget) -> Task[Attention]:
    """The network, learned or found."""
    recipe, num_items = settings.recipe, len(dataset.items)
    config = _network_config(settings, budget.config)
    horizon = recipe.horizon(seed=budget.seed)
    instances = TrainingInstances(dataset.sequences, split.train, split.first_target, horizon=horizon)
    tree = plant(np.arange(num_items), branching=max(2, num_items))
    vectors = svd_vectors(dataset, split, width=settings.width, seed=budget.seed)

    def make() -> Task[Attention]:
        generator = torch_generator(budget.seed, "weights", device=torch.device("cpu"))
        attention = Attention(config.model, tree, generator=generator).to(learning_device(config))
        score = Score(tree, {ATTENTION: attention})
        return Task(
            attention,
            instances,
            make_learner=lambda: build_learner(score, config=config),
            answers=lambda: ExactScan(Engine(build_scorer(score.arrays(), tree, config=config), tree)),
            warm_start=warm_start_of(recipe, attention.start_from_items, vectors),
            max_validation_users=max(100, VALIDATION_SCORES // num_items),
        )

    return learn(settings, make, dataset, split, budget=budget)


def item_vectors(network: Attention) -> Float32Array:
    """The items' own vectors (items, width) of a network that `train` gave."""
    leaves: Float32Array = network.node_table.detach().cpu().numpy()[network.tree.level_offsets[-2] :]
    return leaves


def _network_config(settings: DinSettings, config: Config) -> Config:
    """The settings of the trees, with sizes and negatives of DIN."""
    model = ModelSettings(
        parts=(ATTENTION,),
        embedding_dim=settings.width,
        layers=settings.layers,
        network=NetworkSpec(
            windows=settings.windows, attention_hidden=settings.attention_hidden, history_table="shared"
        ),
    )
    training = config.training.model_copy(update={"method": "dtr-u", "negatives": settings.negatives})
    return config.model_copy(update={"model": model, "training": training})
