"""A run small enough to be repeated dozens of times: eight items in a ring, each followed by the next."""

from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.config import ModelSettings, TrainingSettings
from beamtree.data.split import split_none
from beamtree.model.preference import build_model
from beamtree.training.instances import Batch, TrainingInstances
from beamtree.training.learner import Learner, TorchLearner
from beamtree.training.negatives import UniformNegatives, negatives_per_level
from beamtree.tree.item_tree import ItemTree
from tests.small import model_settings, random_tree, sequences_of

RING = sequences_of([[(start + step) % 8 for step in range(6)] for start in range(8)])


def training_settings(**changes: Any) -> TrainingSettings:
    """Uniform negatives and one target each, the very next item."""
    base: dict[str, Any] = {
        "method": "dtr-u",
        "target_horizon": 1,
        "targets_per_history": 1,
        "negatives": 3,
        "batch_size": 8,
        "epochs": 2.4,
        "learning_rate": 0.02,
        "warmup_steps": 0,
        "validations": 4,
        "checkpoint_minutes": 1000.0,
        "seed": 3,
    }
    return TrainingSettings.model_validate(base | changes)


def batch_of(targets: npt.ArrayLike, *, history_item: int = -1) -> Batch:
    """These targets, each after a history of five times the same item, or of nothing."""
    wanted = np.asarray(targets, dtype=np.int32)
    return Batch(histories=np.full((len(wanted), 5), history_item, dtype=np.int32), targets=wanted)


def ring_tree() -> ItemTree:
    return random_tree(8, branching=2, seed=1)


def ring_instances(history_length: int = 5) -> TrainingInstances:
    """Forty instances: five targets of each of eight users."""
    return TrainingInstances(RING, split_none(RING).train, first_target=1, history_length=history_length)


def torch_learner(
    settings: TrainingSettings, *, model: ModelSettings | None = None, tree: ItemTree | None = None
) -> Learner:
    planted = tree or ring_tree()
    counts = negatives_per_level(planted, negatives=settings.negatives, depth_slope=settings.depth_slope)
    network = build_model(model or model_settings(), planted, seed=settings.seed)
    return TorchLearner(network, planted, negatives=UniformNegatives(planted, counts=counts), settings=settings)


def train(learner: Learner, *, steps: int, learning_rate: float = 0.02) -> list[float]:
    """The losses of so many steps over all instances."""
    instances = ring_instances()
    everything = instances.batch(np.arange(len(instances)))
    return [learner.step(everything, step=step, learning_rate=learning_rate) for step in range(steps)]
