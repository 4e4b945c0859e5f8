"""How fast the default score is learned, beside the attention network on all levels of the tree, from the same log.

An instance is a position of the log that has targets: for the attention network a history of a batch, for the tower's
encoder, SASRec, a position of a window. Of the default score only the encoder is learned by steps; memory is counted.
Making batches, gradients and updates are included on both sides, and both use all threads. The network goes without
batch statistics and dropout, which the kernels do not learn or which cost time, and without rectified labels.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from beamtree.config import Config, PresetName
from beamtree.data.sequences import Sequences
from beamtree.data.split import split_none
from beamtree.fitting.computation import build_learner
from beamtree.model.next_item import NextItemModel
from beamtree.model.score import build_score
from beamtree.training.estimate import sequence_learner
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import TrainingInstances
from beamtree.training.schedule import estimator_schedule
from beamtree.training.windows import TrainingWindows
from beamtree.tree.item_tree import ItemTree
from benchmarks.estimator import HISTORY_LENGTH, SHAPES, Shape, random_sequences
from benchmarks.measure import take_turns

PRESETS: tuple[PresetName, ...] = ("small", "paper")
LOG_SHAPE = SHAPES["ml-1m"]


@dataclass(frozen=True)
class Steps:
    """What takes one step after another when called, and how many instances each of them learns from."""

    run: Callable[[], None]
    instances: int


def measure_default_training(*, items: int, turns: int, shape: Shape = LOG_SHAPE) -> dict[str, dict[PresetName, float]]:
    """Instances per second of both by the preset whose sizes they have, and the ratio.

    shape: of the log, but for its items.
    """
    sequences = random_sequences(replace(shape, items=items))
    rates: dict[str, dict[PresetName, float]] = {"default": {}, "all_levels": {}}
    for preset in PRESETS:
        config = Config.preset(
            preset, model={"network": {"normalisation": "none", "dropout": 0.0}}, training={"device": "cpu"}
        )
        steps = {
            "default": default_steps(sequences, items=items, config=config),
            "all_levels": all_levels_steps(sequences, items=items, config=config),
        }
        taken = take_turns({name: own.run for name, own in steps.items()}, turns=turns)
        for name, seconds in taken.items():
            rates[name][preset] = steps[name].instances / min(seconds)
    return {
        "instances_per_second_default": rates["default"],
        "instances_per_second_all_levels": rates["all_levels"],
        "default_over_all_levels": {
            preset: rates["default"][preset] / rates["all_levels"][preset] for preset in PRESETS
        },
    }


def default_steps(sequences: Sequences, *, items: int, config: Config) -> Steps:
    """Steps of the tower's encoder: windows of the log, forward, backward and the update."""
    settings, split = config.estimator, split_none(sequences)
    length = config.model.history_length or HISTORY_LENGTH
    windows = TrainingWindows.cut(sequences, split, length=length, horizon=_horizon(config))
    encoder = NextItemModel(
        settings, num_items=items, history_length=length, generator=torch.Generator().manual_seed(0)
    )
    learner = sequence_learner(encoder, windows=windows, seed=0)
    positions = int(windows.lengths.sum())
    schedule = estimator_schedule(settings, num_items=items, num_windows=len(windows), num_positions=positions, seed=0)
    chosen = schedule.order.instances_of(0)
    numbers = iter(range(10**9))

    def step() -> None:
        number = next(numbers)
        batch = windows.batch(chosen, epoch=number)
        learner.apply(learner.gradients(batch, step=number), step=number, learning_rate=settings.learning_rate)

    return Steps(step, instances=int((windows.batch(chosen).targets >= 0).any(axis=1).sum()))


def all_levels_steps(sequences: Sequences, *, items: int, config: Config) -> Steps:
    """Steps of the attention network: histories of the log, negatives of each level, gradients and the update."""
    settings, split = config.training, split_none(sequences)
    tree = ItemTree(config.tree.branching, np.random.default_rng(0).permutation(items).astype(np.int32))
    learner = build_learner(build_score(config, tree, seed=0), config=config)
    instances = TrainingInstances(sequences, split.train, split.first_target, horizon=_horizon(config))
    chosen = np.random.default_rng(0).permutation(len(instances))[: settings.batch_size]
    numbers = iter(range(10**9))

    def step() -> None:
        number = next(numbers)
        batch = instances.batch(chosen, epoch=number)
        learner.apply(learner.gradients(batch, step=number), step=number, learning_rate=settings.learning_rate)

    return Steps(step, instances=len(chosen))


def _horizon(config: Config) -> TargetHorizon:
    return TargetHorizon.of(config.training, seed=0)
