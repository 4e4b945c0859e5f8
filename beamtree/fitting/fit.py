"""From a log to a model: train the encoder if a part or the method asks for one, learn in rounds, weigh the parts."""

import time
from collections.abc import Callable, Mapping, Sequence
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
from beamtree.fitting.planting import first_order
from beamtree.fitting.run import FitRun, WorkDirectory, identity_of, training_instances
from beamtree.fitting.tower import build_tower
from beamtree.fitting.weighing import weigh
from beamtree.model.attention import attention_reading
from beamtree.model.counting import count_items
from beamtree.model.estimator import Estimator
from beamtree.model.next_item import NextItemModel
from beamtree.model.part import MakePart, MakePartOnTree
from beamtree.model.score import ATTENTION
from beamtree.retrieval.scorers import tell_items
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
    """Learn a preference model and a tree in turn; the artefact holds the weights and the tree that validated best.

    estimator_cache: a folder of estimators that several runs share; by default each run keeps its own in `work`.
    estimator: stands in for SASRec where labels are rectified. parts: more parts of the score that are learned,
    under names of their own. strategies: how negatives are drawn, what labels count and where items are placed; None =
    as the settings choose. on_encoder: called with the tower's encoder once it is trained. backend: where the long
    stages are computed.
    """
    chosen = Strategies.of(config) if strategies is None else strategies
    is_rectified = chosen.labels.needs_estimator
    if estimator is not None and not is_rectified:
        raise InputError(
            f"An estimator is for rectified labels, and those of this fit are {chosen.labels.name}: set "
            "training.method to 'dtr-t-rl', or leave the estimator out."
        )
    others = tell_items(parts, dataset.item_table)
    learned: dict[str, MakePartOnTree] = dict(others)
    if ATTENTION in config.model.parts:
        learned = {ATTENTION: attention_reading(dataset.features.read), **others}
    if work is not None:
        work.claim(identity_of(dataset, config=config, strategies=chosen.beside(config)))
    first_order(dataset, config=config)  # says what is missing before anything is learned
    instances = training_instances(dataset, split, config=config)
    has_tower = "tower" in config.model.parts
    made = None if estimator is None else make_estimator(estimator, dataset, split)
    trained = None
    if has_tower or (is_rectified and learned and made is None):
        estimators = work.directory / "estimator" if estimator_cache is None and work is not None else estimator_cache
        trained = train_estimator(
            dataset,
            split,
            config=config,
            directory=estimators,
            listen=listen,
            should_stop=should_stop,
            train=backend.train,
        )
    encoder = None
    if has_tower and trained is not None:
        encoder = trained.estimator
        on_encoder(trained)
    run = FitRun(dataset, split, config, work, listen, should_stop, instances, learned, encoder, backend)
    labelling: TrainedEstimator[Estimator] | None = (made or trained) if is_rectified else None
    rounds = learn_in_rounds(run, chosen, estimator=None if labelling is None else labelling.estimator)
    weights, started = dict(rounds.best_weights), time.monotonic()
    weighing: dict[str, Any] = {}
    if encoder is not None:
        weights |= build_tower(run, encoder, rounds.best_tree)
    if {"tower", "memory"} & set(config.model.parts):
        weighed = weigh(run, weights, rounds.best_tree, parts=others)
        weights, weighing = weighed.arrays, {"weighing": weighed.report}
    weighing_seconds = time.monotonic() - started
    return Artefact(
        config=config,
        weights=weights,
        tree=rounds.best_tree,
        popularity=count_items(
            dataset.sequences.items,
            split.train,
            num_items=len(dataset.items),
            weights=dataset.sequences.weights,
        ),
        item_table=dataset.item_table,
        data_fingerprint=dataset.fingerprint,
        request_features=dataset.features.read,
        training={
            "split": split.description,
            "instances": len(instances),
            "steps": sum(report["steps"] for report in rounds.reports),
            "rounds": rounds.reports,
            "best_round": rounds.best_round,
            **({"strategies": beside} if (beside := chosen.beside(config)) else {}),
            **weighing,
            **_seconds(
                rounds,
                [some for some in (made, trained) if some is not None],
                weighing=weighing_seconds,
                is_resumed=work is not None and work.resume,
            ),
        },
    )


def _seconds(
    rounds: Rounds, estimators: Sequence[TrainedEstimator[Estimator]], *, weighing: float, is_resumed: bool
) -> dict[str, Any]:
    """What each part took, interruptions left out; an estimator that was there from the beginning cost nothing."""
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
