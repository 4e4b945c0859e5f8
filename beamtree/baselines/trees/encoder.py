"""SASRec within a share of the budget: the estimator of rectified labels, and JTR's encoder of queries."""

import time
from functools import partial
from itertools import pairwise

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.run import TreeRun
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.errors import InterruptedTraining
from beamtree.fitting.estimator import train_estimator
from beamtree.model.sequence_encoder import SasRec
from beamtree.training.events import Event, StepDone

STEPS_TIMED = 8
"""Steps that are taken, and thrown away, to see how many fit into the time; the fastest counts."""
ENCODER_SHARE = 0.4
"""Of the time that there is, what the steps of an encoder are planned to take beside a tree."""


def train_encoder(run: TreeRun) -> SasRec:
    """SASRec with the comparison's settings, as far as `ENCODER_SHARE` of the time that is left allows.

    Found again in the budget's directory where it was trained before.
    """
    config, budget = run.config, run.budget
    if run.seconds_left is not None:
        config = with_positions_for(run.dataset, run.split, config=config, seconds=ENCODER_SHARE * run.seconds_left)
    return train_estimator(
        run.dataset,
        run.split,
        config=config,
        directory=budget.directory,
        listen=budget.listen,
        should_stop=budget.should_stop,
    ).estimator


def with_positions_for(dataset: Dataset, split: Split, *, config: Config, seconds: float) -> Config:
    """Settings under which training SASRec takes about so long, or less where they allow fewer positions anyway."""
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
    most = config.estimator.most_positions
    fewer = positions if most is None else min(positions, most)
    return config.model_copy(
        update={"estimator": config.estimator.model_copy(update={"most_positions": max(1, fewer)})}
    )


def budget_for_encoder(budget: Budget, dataset: Dataset, split: Split, *, share: float) -> Config:
    """The comparison's settings, with an encoder that takes about this share of the seconds."""
    if budget.seconds is None:
        return budget.config
    left = max(0.0, budget.started + budget.seconds - time.monotonic())
    return with_positions_for(dataset, split, config=budget.config, seconds=share * left)
