"""The systems under test: each learns from the training spans and then recommends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Spans, Split
from beamtree.evaluation.protocol import Recommend, by_beam, by_scan, by_scores
from beamtree.fitting.fit import fit_model
from beamtree.fitting.run import WorkDirectory
from beamtree.model.estimator import Estimator
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.rivals.item_to_item import ItemToItem
from beamtree.rivals.popularity import Popularity
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

    recommend: Recommend
    exact: Recommend | None
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
        recommend=by_beam(engine, beam_width=config.retrieval.beam_width),
        exact=by_scan(engine),
        instances=training["steps"] * batch_size,
        best_round=training["best_round"],
        rounds=rounds,
        stages={name: value for name, value in training.items() if name.endswith("_seconds")},
        artefact=artefact,
        estimator=estimator,
    )


def train_sasrec(lesson: Lesson) -> Trained:
    """SASRec alone, stopped by its validation; every item is scored."""
    dataset, split, config = lesson.dataset, lesson.split, lesson.config
    estimator, cost = obtain_estimator(lesson.estimators, dataset, split, config=config, journal=lesson.journal)
    windows = TrainingWindows.cut(dataset.sequences, split, length=config.model.history_length)
    targets = int((windows.end - windows.first - 1).sum())
    return Trained(
        recommend=by_scores(estimator.scores, history_length=estimator.history_length, num_items=len(dataset.items)),
        exact=None,
        instances=targets * cost.epochs,
    )


def train_popularity(lesson: Lesson) -> Trained:
    """The same list for everyone, by training interactions."""
    dataset, spans = lesson.dataset, lesson.split.train
    popularity = Popularity.fit(dataset.sequences, spans, num_items=len(dataset.items))

    def recommend(requests: Requests, k: int) -> npt.NDArray[np.int32]:
        seen = None if requests.excluded is None else (requests.excluded.items, requests.excluded.offsets)
        return popularity.recommend(k, num_users=len(requests), seen=seen)[0]

    return Trained(recommend=recommend, exact=None, instances=_interactions(spans))


def train_item_to_item(lesson: Lesson) -> Trained:
    """What followed the items of the history most often, counted."""
    dataset, spans = lesson.dataset, lesson.split.train
    model = ItemToItem.fit(dataset.sequences, spans, num_items=len(dataset.items))
    return Trained(
        recommend=by_scores(model.scores, history_length=model.history_length, num_items=len(dataset.items)),
        exact=None,
        instances=_interactions(spans),
    )


SYSTEMS: dict[str, Callable[[Lesson], Trained]] = {
    "dtr-u": train_tree,
    "dtr-t": train_tree,
    "dtr-t-rl": train_tree,
    "sasrec": train_sasrec,
    "item-to-item": train_item_to_item,
    "popularity": train_popularity,
}


def _interactions(spans: Spans) -> int:
    return int((spans.end - spans.start).sum())


def _rounds(reports: list[dict[str, Any]], *, batch_size: int) -> tuple[Round, ...]:
    rounds: list[Round] = []
    steps, seconds = 0, 0.0
    for report in reports:
        steps, seconds = steps + report["steps"], seconds + report["seconds"]
        metrics = {name: value for name, value in report["validation"].items() if "@" in name}
        details = {name: report[name] for name in TREE_DETAILS if name in report}
        rounds.append(Round(report["round"], metrics, steps * batch_size, seconds, details))
    return tuple(rounds)
