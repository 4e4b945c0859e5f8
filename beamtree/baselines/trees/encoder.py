"""SASRec within a share of the budget: the estimator of rectified labels, and JTR's encoder of queries."""

import time
from functools import partial
from itertools import pairwise

from beamtree.baselines.trees.run import TreeRun
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.errors import InterruptedTraining
from beamtree.fitting.estimator import train_estimator
from beamtree.model.sequence_encoder import SasRec
from beamtree.storage import replace_text
from beamtree.training.events import Event, StepDone

STEPS_TIMED = 8
"""Steps that are taken, and thrown away, to see how many fit into the time; the fastest counts."""
ENCODER_SHARE = 0.4
"""Of the time that there is, what the steps of an encoder are planned to take beside a tree."""
PLANNED = "encoder-positions.txt"


def train_encoder(run: TreeRun) -> SasRec:
    """SASRec with the comparison's settings, as far as `ENCODER_SHARE` of the time that is left allows.

    Found again in the budget's directory where it was trained before; how many positions fitted into the time then is
    kept in the run's folder.
    """
    config, budget = run.config, run.budget
    kept = None if run.directory is None else run.directory / PLANNED
    if kept is not None and kept.is_file():
        config = _with_positions(config, int(kept.read_text(encoding="utf-8")))
    elif run.seconds_left is not None:
        config = with_positions_for(run.dataset, run.split, config=config, seconds=ENCODER_SHARE * run.seconds_left)
        if kept is not None and config.estimator.most_positions is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            replace_text(kept, f"{config.estimator.most_positions}\n")
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
    return _with_positions(config, max(1, fewer))


def _with_positions(config: Config, most_positions: int) -> Config:
    estimator = config.estimator.model_copy(update={"most_positions": most_positions})
    return config.model_copy(update={"estimator": estimator})
