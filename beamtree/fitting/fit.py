"""From a log to a model: train the encoder if a part or the method needs it, train in rounds, calibrate the parts."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.errors import InputError
from beamtree.fitting.alternation import learn_in_rounds
from beamtree.fitting.backend import LOCAL, FitBackend
from beamtree.fitting.estimator import MakeEstimator, make_estimator, train_estimator
from beamtree.fitting.first_tree import first_order
from beamtree.fitting.run import FitRun, WorkDirectory, identity_of, training_instances, training_popularity
from beamtree.fitting.tower import build_tower
from beamtree.fitting.weighing import weigh
from beamtree.model.attention import attention_reading
from beamtree.model.estimator import Estimator
from beamtree.model.next_item import NextItemModel
from beamtree.model.part import MakePart, MakePartOnTree
from beamtree.model.score import ATTENTION
from beamtree.retrieval.scorers import bind_items
from beamtree.training.estimate import TrainedEstimator
from beamtree.training.events import Listener
from beamtree.training.rounds import Rounds
from beamtree.training.strategies import Strategies


def fit_model(
    dataset: Dataset,
    split: Split,
    *,
    config: Config,
    work: WorkDirectory | None,
    listen: Listener,
    should_stop: Callable[[], bool],
    estimator_cache: Path | None = None,
    estimator: MakeEstimator | None = None,
    parts: Mapping[str, MakePart] | None = None,
    strategies: Strategies | None = None,
    on_encoder: Callable[[TrainedEstimator[NextItemModel]], None] = lambda _: None,
    backend: FitBackend = LOCAL,
) -> Artefact:
    """Train a model and its tree; the artefact holds the weights and the tree of the best validation.

    estimator_cache: a folder of estimators that several runs share; by default each run has one in `work`.
    estimator: replaces the encoder as the estimator of rectified labels. parts: further trained parts of the score, by
    name. strategies: negative sampler, labels and placement; None = as the settings choose. on_encoder: called with the
    tower's encoder once it is trained. backend: where the long stages run.
    """
    chosen = Strategies.of(config) if strategies is None else strategies
    is_rectified = chosen.labels.needs_estimator
    if estimator is not None and not is_rectified:
        raise InputError(
            f"An estimator is for rectified labels, and those of this fit are {chosen.labels.name}: set "
            "training.method to 'dtr-t-rl', or leave the estimator out."
        )
    others = bind_items(parts, dataset.item_table)
    learned: dict[str, MakePartOnTree] = dict(others)
    if ATTENTION in config.model.parts:
        learned = {ATTENTION: attention_reading(dataset.features.read), **others}
    if work is not None:
        work.claim(identity_of(dataset, config=config, strategies=chosen.beside(config)))
    first_order(dataset, config=config)  # says what is missing before anything is learned
    instances = training_instances(dataset, split, config=config)
    run = FitRun(dataset, split, config, work, listen, should_stop, instances, learned, backend=backend)
    made = None if estimator is None else make_estimator(estimator, dataset, split)
    trained = None
    if "tower" in config.model.parts or (is_rectified and learned and made is None):
        trained = _train_encoder(run, estimator_cache)
    if "tower" in config.model.parts and trained is not None:
        run = replace(run, encoder=trained.estimator)
        on_encoder(trained)
    labelling: TrainedEstimator[Estimator] | None = (made or trained) if is_rectified else None
    rounds = learn_in_rounds(run, chosen, estimator=None if labelling is None else labelling.estimator)
    artefact, weighing_seconds = _weighed(run, rounds, parts=others)
    seconds = _seconds(
        rounds,
        [some for some in (made, trained) if some is not None],
        weighing=weighing_seconds,
        is_resumed=work is not None and work.resume,
    )
    beside = chosen.beside(config)
    strategies_beside = {"strategies": beside} if beside else {}
    return replace(artefact, training={**_learned(run, rounds), **strategies_beside, **artefact.training, **seconds})


def _learned(run: FitRun, rounds: Rounds) -> dict[str, Any]:
    """The training data of the rounds, and their reports."""
    return {
        "split": run.split.description,
        "instances": len(run.instances),
        "steps": sum(report["steps"] for report in rounds.reports),
        "rounds": rounds.reports,
        "best_round": rounds.best_round,
    }


def _train_encoder(run: FitRun, cache: Path | None) -> TrainedEstimator[NextItemModel]:
    """The encoder, from the shared folder if there is one, else from that of the run."""
    return train_estimator(
        run.dataset,
        run.split,
        config=run.config,
        directory=run.work.directory / "estimator" if cache is None and run.work is not None else cache,
        listen=run.listen,
        should_stop=run.should_stop,
        train=run.backend.train,
    )


def _weighed(run: FitRun, rounds: Rounds, *, parts: Mapping[str, MakePartOnTree]) -> tuple[Artefact, float]:
    """The best round with the parts that are not trained in rounds, and the seconds that these took."""
    weights, started = dict(rounds.best_weights), time.monotonic()
    training: dict[str, Any] = {}
    if run.encoder is not None:
        weights |= build_tower(run, run.encoder, rounds.best_tree)
    if {"tower", "memory"} & set(run.config.model.parts):
        weighed = weigh(run, weights, rounds.best_tree, parts=parts)
        weights, training = weighed.arrays, {"weighing": weighed.report}
    seconds = time.monotonic() - started
    artefact = Artefact(
        config=run.config,
        weights=weights,
        tree=rounds.best_tree,
        popularity=training_popularity(run.dataset, run.split),
        item_table=run.dataset.item_table,
        data_fingerprint=run.dataset.fingerprint,
        request_features=run.dataset.features.read,
        training=training,
    )
    return artefact, seconds


def _seconds(
    rounds: Rounds, estimators: Sequence[TrainedEstimator[Estimator]], *, weighing: float, is_resumed: bool
) -> dict[str, Any]:
    """Seconds by stage, without interruptions; an estimator that was loaded from a cache counts as free."""
    stages: dict[str, float] = {"planting_seconds": rounds.planting_seconds}
    if estimators:
        stages["estimator_seconds"] = sum(trained.seconds for trained in estimators)
        stages["labels_seconds"] = sum(report.get("labels_seconds", 0.0) for report in rounds.reports)
    stages["learning_seconds"] = sum(report["seconds"] for report in rounds.reports)
    stages["relearning_seconds"] = sum(report.get("relearning_seconds", 0.0) for report in rounds.reports)
    stages["weighing_seconds"] = weighing
    reused = [trained for trained in estimators if trained.is_reused and not is_resumed]
    spent = sum(stages.values()) - sum(trained.seconds for trained in reused)
    return {
        **{name: round(seconds, 1) for name, seconds in stages.items()},
        "estimator_reused": bool(reused),
        "seconds": round(spent, 1),
    }
