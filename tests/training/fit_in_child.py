"""A real process that fits a small model, to be killed: python -m tests.training.fit_in_child METHOD WORK OUT STEPS

Goes on from a checkpoint in WORK if there is one, saves the model to OUT, and waits for ever after STEPS steps (0:
never) of the tree model, or of the encoder where METHOD is features, so that whoever means to kill it is never too
late.
"""

import sys
from pathlib import Path
from typing import Any

import polars as pl
import torch

from beamtree.artefact import save_artefact
from beamtree.config import Config
from beamtree.data.columns import CONTEXT_PREFIX
from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.interactions import InteractionLog
from beamtree.data.prepare import prepare_log
from beamtree.data.split import split_users
from beamtree.fitting.fit import fit_model
from beamtree.fitting.run import WorkDirectory
from beamtree.training.events import ESTIMATOR, TREE_MODEL, Event, StepDone
from tests.small import small_config, two_group_log

FEATURES = "features"
"""Instead of a method: a tower that reads features of users and contexts."""
ATTENTION_FEATURES = "attention features"
"""Instead of a method: attention that reads them, in two rounds."""


def fit(method: str, work: Path, out: Path, *, steps: int, cities: tuple[str, str] = ("Oslo", "Rome")) -> None:
    estimator: dict[str, Any] = {"width": 4, "layers": 1, "epochs": 1}
    if method == FEATURES:
        learner = ESTIMATOR
        config = small_config(
            model={"parts": ["tower", "memory"]},
            log={"features": {"context.device": "category"}},
            training={"checkpoint_minutes": 0},
            estimator={**estimator, "epochs": 2, "batch_positions": 32},
        )
        dataset, config = _with_features(config, cities=cities)
    elif method == ATTENTION_FEATURES:
        learner = TREE_MODEL
        config = small_config(
            model={"parts": ["attention"]},
            log={"features": {"context.device": "category"}},
            training={"method": "dtr-t", "batch_size": 32, "checkpoint_minutes": 0, "rounds": 2},
        )
        dataset, config = _with_features(config, cities=cities)
    else:
        learner = TREE_MODEL
        config = small_config(
            model={"dropout": 0.2},
            tree={"order": "random"},
            training={
                "method": method,
                "batch_size": 32,
                "checkpoint_minutes": 0,
                "validations": 2,
                "patience": 10,
                "rounds": 2,
            },
            estimator=estimator,
        )
        dataset = prepare_dataset(two_group_log(), min_interactions=2)
    taken = 0

    def listen(event: Event) -> None:
        nonlocal taken
        if isinstance(event, StepDone) and event.learner == learner:
            taken += 1
            if taken == steps:
                sys.stdin.read()

    artefact = fit_model(
        dataset,
        split_users(dataset.sequences, seed=0),
        config=config,
        work=WorkDirectory(work, resume=True),
        listen=listen,
        should_stop=lambda: False,
    )
    save_artefact(out, artefact)


def _with_features(config: Config, *, cities: tuple[str, str]) -> tuple[Dataset, Config]:
    """Users of group a live in the first city, on the phone at even times."""
    frame = two_group_log().frame
    device = pl.when(pl.col("timestamp") % 2 == 0).then(pl.lit("phone")).otherwise(pl.lit("desktop"))
    log = InteractionLog(frame.with_columns(device.alias(f"{CONTEXT_PREFIX}device")))
    users = frame.select(pl.col("user_id").unique(maintain_order=True))
    city = pl.when(pl.col("user_id").str.starts_with("a")).then(pl.lit(cities[0])).otherwise(pl.lit(cities[1]))
    prepared = prepare_log(log, config=config, users=users.with_columns(city=city))
    return prepared.dataset, prepared.config


if __name__ == "__main__":
    torch.set_num_threads(1)
    fit(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), steps=int(sys.argv[4]))
