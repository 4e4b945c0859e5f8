"""The systems under test: trees of every method, and the baselines of the registry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from beamtree.artefact import Artefact
from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import BASELINES
from beamtree.baselines.sasrec import SASREC_SYSTEMS
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.evaluation.answers import Answers, BeamSearch, ExactScan
from beamtree.fitting.fit import fit_model
from beamtree.fitting.run import WorkDirectory
from beamtree.model.estimator import Estimator
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.training.interrupt import stop_requests
from beamtree.training.windows import TrainingWindows
from experiments.estimators import obtain_estimator
from experiments.journal import Journal

TREE_DETAILS: tuple[str, ...] = ("moved_share", "score_before", "score_after")


@dataclass(frozen=True)
class Round:
    """Where a run stood at the end of a round: metrics on validation users, instances and seconds since its start."""

    number: int
    metrics: Mapping[str, float]
    instances: int
    seconds: float
    details: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """A system that has learned.

    exact: an exact scan by the same model; None for a system that looks at every item anyway. stages: seconds by name.
    artefact, estimator: a tree's own, and what rectified its labels.
    """

    answers: Answers
    exact: Answers | None
    instances: int
    best_round: int = 0
    rounds: tuple[Round, ...] = ()
    stages: Mapping[str, float] = field(default_factory=dict)
    artefact: Artefact | None = None
    estimator: Estimator | None = None


@dataclass(frozen=True)
class Lesson:
    """What a system learns from, with which settings, the run's folder for checkpoints, and that of all estimators."""

    dataset: Dataset
    split: Split
    config: Config
    folder: Path
    estimators: Path
    journal: Journal


def train_tree(lesson: Lesson) -> Trained:
    """DTR, with the method that the settings name; goes on from the checkpoint in the folder, if there is one."""
    config, estimator = lesson.config, None
    if config.training.method == "dtr-t-rl":
        estimator, _ = obtain_estimator(
            lesson.estimators, lesson.dataset, lesson.split, config=config, journal=lesson.journal
        )
    with stop_requests() as should_stop:
        artefact = fit_model(
            lesson.dataset,
            lesson.split,
            config=config,
            work=WorkDirectory(lesson.folder, resume=True),
            listen=lesson.journal,
            should_stop=should_stop,
            estimator_cache=lesson.estimators,
        )
    engine = Engine(build_scorer(artefact.weights, artefact.tree, config=config), artefact.tree)
    training = artefact.training
    batch_size = min(config.training.batch_size, training["instances"])
    rounds = _rounds(training["rounds"], batch_size=batch_size)
    return Trained(
        answers=BeamSearch(engine, config.retrieval.beam_width),
        exact=ExactScan(engine),
        instances=training["steps"] * batch_size,
        best_round=training["best_round"],
        rounds=rounds,
        stages={name: value for name, value in training.items() if name.endswith("_seconds")},
        artefact=artefact,
        estimator=estimator,
    )


def train_baseline(name: str, lesson: Lesson) -> Trained:
    """A baseline of the registry; every item is scored.

    One that uses SASRec shares it with all runs, and is charged with what training it took.
    """
    dataset, split, config = lesson.dataset, lesson.split, lesson.config
    instances = int((split.train.end - split.train.start).sum())
    if name in SASREC_SYSTEMS:
        _, cost = obtain_estimator(lesson.estimators, dataset, split, config=config, journal=lesson.journal)
        windows = TrainingWindows.cut(dataset.sequences, split, length=config.model.history_length)
        instances = round(int(windows.lengths.sum()) * cost.epochs)
    with stop_requests() as should_stop:
        budget = Budget(config, directory=lesson.estimators, listen=lesson.journal, should_stop=should_stop)
        answers = BASELINES[name].fit(dataset, split, budget=budget)
    return Trained(answers=answers, exact=None, instances=instances)


SYSTEMS: dict[str, Callable[[Lesson], Trained]] = {
    "dtr-u": train_tree,
    "dtr-t": train_tree,
    "dtr-t-rl": train_tree,
    **{name: partial(train_baseline, name) for name in BASELINES},
}


def _rounds(reports: list[dict[str, Any]], *, batch_size: int) -> tuple[Round, ...]:
    rounds: list[Round] = []
    steps, seconds = 0, 0.0
    for report in reports:
        steps, seconds = steps + report["steps"], seconds + report["seconds"]
        metrics = {name: value for name, value in report["validation"].items() if "@" in name}
        details = {name: report[name] for name in TREE_DETAILS if name in report}
        rounds.append(Round(report["round"], metrics, steps * batch_size, seconds, details))
    return tuple(rounds)
