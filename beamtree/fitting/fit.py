"""From a log to a model: obtain the estimator if the method asks one, learn in rounds, and hand over the best."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.errors import InputError
from beamtree.fitting.alternation import learn_in_rounds
from beamtree.fitting.estimator import MakeEstimator, make_estimator, train_estimator
from beamtree.fitting.planting import first_order
from beamtree.fitting.remembering import remember
from beamtree.fitting.run import FitRun, WorkDirectory
from beamtree.model.attention import make_attention
from beamtree.model.counting import count_items
from beamtree.model.part import MakePart, MakePartOnTree
from beamtree.retrieval.scorers import tell_items
from beamtree.training.estimate import TrainedEstimator
from beamtree.training.events import Listener
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import TrainingInstances
from beamtree.training.rounds import Rounds

LEARNED_PARTS: dict[str, MakePartOnTree] = {"attention": make_attention}


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
) -> Artefact:
    """Learn a preference model and a tree in turn; the artefact holds the weights and the tree that validated best.

    estimator_cache: a folder of estimators that several runs share; by default each run keeps its own in `work`.
    estimator: stands in for SASRec where labels are rectified. parts: more parts of the score that are learned,
    under names of their own.
    """
    is_rectified = config.training.method == "dtr-t-rl"
    if estimator is not None and not is_rectified:
        raise InputError(
            f"An estimator rectifies labels, and training.method = {config.training.method!r} has none: set it to "
            "'dtr-t-rl', or leave the estimator out."
        )
    others = tell_items(parts, dataset.item_table)
    learned = {name: make for name, make in LEARNED_PARTS.items() if name in config.model.parts} | others
    first_order(dataset, config=config)  # says what is missing before anything is learned
    instances = TrainingInstances(
        dataset.sequences,
        split.train,
        first_target=split.first_target,
        horizon=TargetHorizon.of(config.training, seed=config.training.seed),
        times=dataset.timestamps,
    )
    trained = None
    if estimator is not None:
        trained = make_estimator(estimator, dataset, split)
    elif is_rectified and learned:
        estimators = work.directory / "estimator" if estimator_cache is None and work is not None else estimator_cache
        trained = train_estimator(
            dataset, split, config=config, directory=estimators, listen=listen, should_stop=should_stop
        )
    run = FitRun(dataset, split, config, work, listen, should_stop, instances, learned)
    rounds = learn_in_rounds(run, None if trained is None else trained.estimator)
    weights, memory = dict(rounds.best_weights), {}
    if "memory" in config.model.parts:
        remembered = remember(run, weights, rounds.best_tree, parts=others)
        weights |= remembered.arrays
        memory = {"memory": remembered.report}
    return Artefact(
        config=config,
        weights=weights,
        tree=rounds.best_tree,
        popularity=count_items(dataset.sequences.items, split.train, num_items=len(dataset.items)),
        item_table=dataset.item_table,
        data_fingerprint=dataset.fingerprint,
        training={
            "split": split.description,
            "instances": len(instances),
            "steps": sum(report["steps"] for report in rounds.reports),
            "rounds": rounds.reports,
            "best_round": rounds.best_round,
            **memory,
            **_seconds(rounds, trained, memory=memory, is_resumed=work is not None and work.resume),
        },
    )


def _seconds(
    rounds: Rounds, trained: TrainedEstimator | None, *, memory: Mapping[str, Mapping[str, Any]], is_resumed: bool
) -> dict[str, Any]:
    """What each part took, interruptions left out; an estimator that was there from the beginning cost nothing."""
    stages: dict[str, float] = {"planting_seconds": rounds.planting_seconds}
    if trained is not None:
        stages["estimator_seconds"] = trained.seconds
        stages["labels_seconds"] = sum(report["labels_seconds"] for report in rounds.reports)
    stages["learning_seconds"] = sum(report["seconds"] for report in rounds.reports)
    stages["relearning_seconds"] = sum(report.get("relearning_seconds", 0.0) for report in rounds.reports)
    if memory:
        stages["memory_seconds"] = memory["memory"]["seconds"]
    is_reused = trained is not None and trained.is_reused and not is_resumed
    spent = sum(stages.values()) - (stages["estimator_seconds"] if is_reused else 0.0)
    return {
        **{name: round(seconds, 1) for name, seconds in stages.items()},
        "estimator_reused": is_reused,
        "seconds": round(spent, 1),
    }
