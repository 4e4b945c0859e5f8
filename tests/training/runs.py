"""A run small enough to be repeated dozens of times: eight items in a ring, each followed by the next."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from beamtree.config import ModelSettings, TrainingSettings
from beamtree.data.requests import Histories
from beamtree.data.split import split_none
from beamtree.training.gradients import Gradients
from beamtree.training.instances import Batch, TrainingInstances
from beamtree.training.learner import Learner, TorchLearner
from beamtree.training.negatives import UniformNegatives, same_on_every_level
from beamtree.tree.item_tree import ItemTree
from tests.small import fresh_attention, model_settings, nested, random_tree, score_of, sequences_of

RING = sequences_of([[(start + step) % 8 for step in range(6)] for start in range(8)])


def training_settings(**changes: Any) -> TrainingSettings:
    """Uniform negatives and one target each, the very next item."""
    base: dict[str, Any] = {
        "method": "dtr-u",
        "target_horizon": 1,
        "negatives": 3,
        "batch_size": 8,
        "epochs": 2.4,
        "learning_rate": 0.02,
        "warmup_steps": 0,
        "validations": 4,
        "checkpoint_minutes": 1000.0,
        "seed": 3,
    }
    return TrainingSettings.model_validate(nested({"training": base | changes})["training"])


def batch_of(targets: npt.ArrayLike, *, history_item: int = -1) -> Batch:
    """These targets, each after a history of five times the same item, or of nothing."""
    wanted = np.asarray(targets, dtype=np.int32)
    return batch_from(np.full((len(wanted), 5), history_item, dtype=np.int32), wanted)


def batch_from(
    histories: npt.NDArray[np.int32],
    targets: npt.NDArray[np.int32],
    level_weights: npt.NDArray[np.float32] | None = None,
) -> Batch:
    """Histories (instances, positions), -1 in front, with one target each (instances,) and its weights, if any."""
    weights = None if level_weights is None else level_weights[:, None]
    return Batch(Histories.of_rows(histories), targets[:, None], weights)


def take_step(learner: Learner, batch: Batch, *, step: int, learning_rate: float) -> float:
    """Learn from a batch; the loss before the update."""
    gradients = learner.gradients(batch, step=step)
    learner.apply(gradients, step=step, learning_rate=learning_rate)
    return gradients.loss


def assert_same_gradients(left: Gradients, right: Gradients) -> None:
    """The same loss, names, rows and bytes."""
    assert left.loss == right.loss
    for name in ("dense", "statistics"):
        found, expected = getattr(left, name), getattr(right, name)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[each], expected[each]) for each in found)
    assert left.rows.keys() == right.rows.keys()
    for name, touched in left.rows.items():
        assert torch.equal(touched.rows, right.rows[name].rows)
        assert torch.equal(touched.values, right.rows[name].values)


def ring_tree() -> ItemTree:
    return random_tree(8, branching=2, seed=1)


def ring_instances() -> TrainingInstances:
    """Forty instances: five targets of each of eight users."""
    return TrainingInstances(RING, split_none(RING).train, first_target=1)


def torch_learner(
    settings: TrainingSettings, *, model: ModelSettings | None = None, tree: ItemTree | None = None
) -> TorchLearner:
    planted = tree or ring_tree()
    counts = same_on_every_level(planted, settings.negatives)
    score = score_of(fresh_attention(model or model_settings(), planted, seed=settings.seed))
    return TorchLearner(score, draws=UniformNegatives(planted, counts=counts), settings=settings)


def train(learner: Learner, *, steps: int, learning_rate: float = 0.02) -> list[float]:
    """The losses of so many steps over all instances."""
    instances = ring_instances()
    everything = instances.batch(np.arange(len(instances)))
    return [take_step(learner, everything, step=step, learning_rate=learning_rate) for step in range(steps)]
