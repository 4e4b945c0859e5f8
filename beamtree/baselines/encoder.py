"""Sequence encoders trained within a time budget, one of each kind, shared by all systems of a comparison.

The learning-rate schedule needs the number of positions in advance: a few steps are timed, and as many positions are
planned as fit.
"""

import hashlib
import json
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise

from beamtree.baselines.protocol import Budget
from beamtree.config import Config, EncoderKind
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.errors import InterruptedTraining
from beamtree.fitting.estimator import train_estimator
from beamtree.model.next_item import NextItemModel
from beamtree.storage import replace_text
from beamtree.training.events import Event, StepDone

STEPS_TIMED = 8
"""Steps that are timed, and discarded, to plan the training; the fastest one counts."""
SHARE = 0.7
"""Of the seconds of a budget, what the steps are planned to take."""


def trained_encoder(kind: EncoderKind, dataset: Dataset, split: Split, *, budget: Budget) -> NextItemModel:
    """With the settings of the section `estimator`, as far as the budget allows; cached in its folder."""
    budget = replace(budget, config=with_encoder(budget.config, kind))
    return train_with(config_within(budget, dataset, split), dataset, split, budget=budget)


def train_with(config: Config, dataset: Dataset, split: Split, *, budget: Budget) -> NextItemModel:
    """The encoder of these settings; found again in the budget's directory where it was trained before."""
    return train_estimator(
        dataset,
        split,
        config=config,
        directory=budget.directory,
        listen=budget.listen,
        should_stop=budget.should_stop,
    ).estimator


def config_within(budget: Budget, dataset: Dataset, split: Split) -> Config:
    """The budget's settings with as many positions as fit into its seconds; planned once per folder."""
    if budget.seconds is None:
        return budget.config
    seconds = SHARE * budget.seconds
    if budget.directory is None:
        return with_positions_for(dataset, split, config=budget.config, seconds=seconds)
    config = budget.config
    encoder = [config.estimator.model_dump(mode="json"), config.encoder_history]
    decisive = [dataset.fingerprint, split.description, seconds, encoder]
    key = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]
    kept = budget.directory / f"encoder-{key}.json"
    if kept.is_file():
        positions = json.loads(kept.read_text(encoding="utf-8"))
        return budget.config if positions is None else with_positions(budget.config, positions)
    planned = with_positions_for(dataset, split, config=budget.config, seconds=seconds)
    kept.parent.mkdir(parents=True, exist_ok=True)
    replace_text(kept, json.dumps(planned.estimator.max_positions))
    return planned


def with_positions_for(dataset: Dataset, split: Split, *, config: Config, seconds: float) -> Config:
    """Settings with which training the encoder takes about the given time, or less if they allow fewer positions."""
    taken: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, StepDone):
            taken.append(time.perf_counter())

    train = partial(train_estimator, dataset, split, config=config, directory=None, listen=listen)
    try:
        train(should_stop=lambda: len(taken) > STEPS_TIMED)
    except InterruptedTraining:
        pass
    else:
        return config
    step = min(later - earlier for earlier, later in pairwise(taken))
    positions = round(seconds / step * config.estimator.batch_positions_of(len(dataset.items)))
    most = config.estimator.max_positions
    fewer = positions if most is None else min(positions, most)
    return with_positions(config, max(1, fewer))


def with_encoder(config: Config, kind: EncoderKind) -> Config:
    """The same settings with another kind of encoder, and the number of layers that suits it."""
    if config.estimator.encoder == kind:
        return config
    recipe = config.estimator.recipe.model_copy(update={"layers": None})
    estimator = config.estimator.model_copy(update={"encoder": kind, "recipe": recipe})
    return config.model_copy(update={"estimator": estimator})


def with_positions(config: Config, max_positions: int) -> Config:
    """The same settings with a limit on the encoder's positions."""
    estimator = config.estimator.model_copy(update={"max_positions": max_positions})
    return config.model_copy(update={"estimator": estimator})
