"""The share of an epoch that the limits of the settings allow, reported before training."""

import numpy as np

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.training.strategies import Strategies
from beamtree.training.windows import TrainingWindows


def explain_partial_epochs(dataset: Dataset, split: Split, *, config: Config, strategies: Strategies) -> list[str]:
    """A sentence for each learner that will not see every training interaction once, with the setting that decides."""
    said = []
    parts, training, estimator = config.model.parts, config.training, config.estimator
    if estimator.max_positions is not None and ("tower" in parts or strategies.labels.needs_estimator):
        windows = TrainingWindows.cut(dataset.sequences, split, length=config.encoder_history)
        said += _sentence(
            "the encoder",
            int(windows.lengths.sum()),
            "positions",
            setting="estimator.max_positions",
            most=estimator.max_positions,
        )
    if training.max_instances is not None and "attention" in parts:
        instances = np.maximum(split.train.end - split.train.start - split.first_target, 0)
        said += _sentence(
            "the attention network",
            int(instances.sum()),
            "instances",
            setting="training.max_instances",
            most=training.max_instances,
        )
    return said


def _sentence(learner: str, there_are: int, unit: str, *, setting: str, most: int) -> list[str]:
    if there_are <= most:
        return []
    share = f"{most / there_are:.0%} of an epoch"
    return [f"{learner} learns from {most:,} of {there_are:,} {unit}, {share}; {setting}={there_are} gives a whole one"]
