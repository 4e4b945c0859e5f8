"""From a log to a model: split, plant, then learn the model and the tree in turn. Here the parts of training meet."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from beamtree import native
from beamtree.artefact import Artefact
from beamtree.config import Config, TrainingSettings
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut, Spans, Split
from beamtree.errors import InterruptedTraining, SettingsError
from beamtree.evaluation.protocol import by_beam, by_scores, describe_protocol, evaluate
from beamtree.model.estimator import Estimator
from beamtree.model.preference import PreferenceModel, build_model
from beamtree.retrieval.engine import Engine
from beamtree.rivals.popularity import Popularity
from beamtree.training.candidate_scores import native_candidate_scores, torch_candidate_scores
from beamtree.training.checkpoint import RunIdentity, model_arrays
from beamtree.training.estimate import EstimatorRun, TrainedEstimator, load_or_train_estimator
from beamtree.training.estimator_store import EstimatorStore, estimator_key
from beamtree.training.events import Listener, TreeRelearned
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import TrainingInstances
from beamtree.training.labelled import RectifiedInstances
from beamtree.training.learner import Learner, TorchLearner
from beamtree.training.negatives import NegativeSampler, UniformNegatives, negatives_per_level
from beamtree.training.optimise import SELECTION_METRIC, CheckpointPlan, optimise
from beamtree.training.randomness import numpy_generator, seed_for
from beamtree.training.relearn import Relearned, relearn_tree
from beamtree.training.rounds import Rounds, forget_rounds, load_rounds, round_seed, save_rounds
from beamtree.training.soft_labels import SoftInstances
from beamtree.training.tree_negatives import TreeNegatives
from beamtree.tree.assign import by_regret, by_score
from beamtree.tree.build import category_order, clustering_order, plant, random_order
from beamtree.tree.cooccurrence import cooccurrence_vectors
from beamtree.tree.item_tree import ItemTree

log = logging.getLogger(__name__)

MOST_CLUSTERED_ITEMS = 200_000
"""Clustering runs one k-means for each inner node: minutes at this size. Larger catalogues need to ask for it."""


@dataclass(frozen=True)
class WorkDirectory:
    """Where a run keeps its checkpoints, and whether it goes on from the one that is there."""

    directory: Path
    resume: bool


@dataclass
class _Run:
    """One fit under way: what it works on, and how it is watched and stopped."""

    dataset: Dataset
    split: Split
    config: Config
    work: WorkDirectory | None
    listen: Listener
    should_stop: Callable[[], bool]
    instances: TrainingInstances

    def instances_of_round(self, round_number: int) -> TrainingInstances:
        """The training instances, with targets drawn for this round."""
        return self.instances.with_seed(round_seed(self.config.training.seed, round_number))

    def stop_while(self, doing: str) -> Callable[[], None]:
        """To be called at each step of something that keeps no checkpoint: InterruptedTraining when asked to stop."""
        kept = "no folder for checkpoints was given" if self.work is None else "it begins again with --resume"

        def on_step() -> None:
            if self.should_stop():
                raise InterruptedTraining(f"Stopped while {doing}. Nothing of that was saved: {kept}.")

        return on_step


def fit_model(
    dataset: Dataset,
    split: Split,
    *,
    config: Config,
    work: WorkDirectory | None,
    listen: Listener,
    should_stop: Callable[[], bool],
    estimator_cache: Path | None = None,
) -> Artefact:
    """Learn a preference model and a tree in turn; the artefact holds the weights and the tree that validated best.

    estimator_cache: a folder of estimators that several runs share; by default each run keeps its own in `work`.
    """
    _order(dataset, config=config)
    instances = TrainingInstances(
        dataset.sequences,
        split.train,
        first_target=split.first_target,
        history_length=config.model.history_length,
        horizon=_horizon(config, seed=config.training.seed),
    )
    estimators = work.directory / "estimator" if estimator_cache is None and work is not None else estimator_cache
    run = _Run(dataset, split, config, work, listen, should_stop, instances)
    trained = None
    if config.training.method == "dtr-t-rl":
        trained = _obtain_estimator(
            dataset, split, config=config, directory=estimators, listen=listen, should_stop=should_stop
        )
    rounds = _learn_in_rounds(run, None if trained is None else trained.estimator)
    return Artefact(
        config=config,
        weights=rounds.best_weights,
        tree=rounds.best_tree,
        popularity=Popularity.fit(dataset.sequences, split.train, num_items=len(dataset.items)).counts,
        item_table=dataset.item_table,
        data_fingerprint=dataset.fingerprint,
        training={
            "split": split.description,
            "instances": len(instances),
            "steps": sum(report["steps"] for report in rounds.reports),
            "rounds": rounds.reports,
            "best_round": rounds.best_round,
            **_seconds(rounds, trained, is_shared=estimator_cache is not None),
        },
    )


def _horizon(config: Config, *, seed: int) -> TargetHorizon:
    settings = config.training
    return TargetHorizon(settings.target_horizon, each=settings.targets_per_history, seed=seed)


def _seconds(rounds: Rounds, trained: TrainedEstimator | None, *, is_shared: bool) -> dict[str, Any]:
    """What each part took, interruptions left out; an estimator from a shared folder was paid for by another run."""
    stages: dict[str, float] = {"planting_seconds": rounds.planting_seconds}
    if trained is not None:
        stages["estimator_seconds"] = trained.seconds
        stages["labels_seconds"] = sum(report["labels_seconds"] for report in rounds.reports)
    stages["learning_seconds"] = sum(report["seconds"] for report in rounds.reports)
    stages["relearning_seconds"] = sum(report.get("relearning_seconds", 0.0) for report in rounds.reports)
    is_reused = is_shared and trained is not None and trained.is_reused
    spent = sum(stages.values()) - (stages["estimator_seconds"] if is_reused else 0.0)
    return {
        **{name: round(seconds, 1) for name, seconds in stages.items()},
        "estimator_reused": is_reused,
        "seconds": round(spent, 1),
    }


def initial_tree(
    dataset: Dataset, train: Spans, *, config: Config, on_step: Callable[[], None] = lambda: None
) -> ItemTree:
    """The first tree, before anything is learned, in the order that the settings name.

    on_step: called at each step of a clustering; it may raise to stop.
    """
    generator = numpy_generator(config.training.seed, "leaves")
    num_items, branching = len(dataset.items), config.tree.branching
    match _order(dataset, config=config):
        case "random":
            order = random_order(num_items, generator=generator)
        case "category":
            order = category_order(dataset.item_table["category"], generator=generator)
        case "clustering":
            vectors = cooccurrence_vectors(
                dataset.sequences, train, num_items=num_items, size=config.model.embedding_dim, generator=generator
            )
            order = clustering_order(vectors, branching=branching, generator=generator, on_step=on_step)
    return plant(order, branching=branching)


def build_learner(model: PreferenceModel, tree: ItemTree, *, config: Config) -> Learner:
    """The fastest way of learning this model here: in the kernels on a CPU where they were compiled, else in torch."""
    settings = config.training
    counts = negatives_per_level(tree, negatives=settings.negatives, depth_slope=settings.depth_slope)
    if _kernels_know(model, config):
        from beamtree.native.training import Negatives
        from beamtree.training.native_learner import NativeLearner

        drawn = Negatives(counts, sampler="uniform" if settings.method == "dtr-u" else "top_down")
        return NativeLearner(model, tree, negatives=drawn, settings=settings, model_settings=config.model)
    if not native.is_available():
        log.warning(
            "The kernels were not compiled, so training runs in torch, many times slower. Install a C++ compiler and "
            "install beamtree again; `beamtree doctor` shows what is active."
        )
    sampler: NegativeSampler = UniformNegatives(tree, counts=counts)
    if settings.method != "dtr-u":
        sampler = TreeNegatives(model, tree, count=settings.negatives)
    return TorchLearner(model, tree, negatives=sampler, settings=settings)


def _learn_in_rounds(run: _Run, estimator: Estimator | None) -> Rounds:
    """Alternate: learn the model over the tree, place the items anew with that model; the best round is kept."""
    config, seed = run.config, run.config.training.seed
    rounds_directory = None if run.work is None else run.work.directory / "rounds"
    identity = RunIdentity.of(config, data_fingerprint=run.dataset.fingerprint)
    rounds: Rounds | None = None
    if run.work is not None and rounds_directory is not None:
        if run.work.resume:
            rounds = load_rounds(rounds_directory, identity=identity)
        else:
            forget_rounds(run.work.directory)
    if rounds is None:
        started = time.monotonic()
        on_step = run.stop_while("clustering the items for the first tree")
        tree = initial_tree(run.dataset, run.split.train, config=config, on_step=on_step)
        model = build_model(config.model, tree, seed=seed_for(seed, "weights"))
        rounds = Rounds.first(tree, model_arrays(model))
        rounds.planting_seconds = time.monotonic() - started
        if rounds_directory is not None:
            save_rounds(rounds_directory, rounds, identity=identity)
    model = build_model(config.model, rounds.tree, seed=seed_for(seed, "weights"))
    while rounds.round < config.training.rounds:
        rounds.restore(model)
        report = _learn_round(run, model, rounds, estimator=estimator, identity=identity)
        rounds.finish(model, report, score=report["validation"].get(SELECTION_METRIC))
        if rounds.round < config.training.rounds:
            started = time.monotonic()
            relearned = _relearn(run, model, rounds)
            rounds.replant(relearned.tree, travel=config.tree.moved_rows == "travel")
            report |= {
                "moved_share": relearned.moved_share,
                "score_before": relearned.score_before,
                "score_after": relearned.score_after,
                "relearning_seconds": time.monotonic() - started,
            }
            run.listen(
                TreeRelearned(rounds.round, relearned.moved_share, relearned.score_before, relearned.score_after)
            )
        if rounds_directory is not None:
            save_rounds(rounds_directory, rounds, identity=identity)
    return rounds


def _learn_round(
    run: _Run, model: PreferenceModel, rounds: Rounds, *, estimator: Estimator | None, identity: RunIdentity
) -> dict[str, Any]:
    """Learn the model over the tree of this round; a report of how it went."""
    settings = run.config.training.model_copy(update={"seed": round_seed(run.config.training.seed, rounds.round)})
    config = run.config.model_copy(update={"training": settings})
    drawn = run.instances_of_round(rounds.round)
    labelled = None if estimator is None else _labelled(drawn, estimator, tree=rounds.tree, settings=settings)
    plan = None
    if run.work is not None:
        directory = run.work.directory / f"round-{rounds.round}"
        plan = CheckpointPlan(directory, identity=identity, resume=run.work.resume)
    progress = optimise(
        build_learner(model, rounds.tree, config=config),
        drawn if labelled is None else labelled,
        settings=settings,
        validate=_validation(run.dataset, run.split.validation, tree=rounds.tree, config=run.config),
        plan=plan,
        listen=run.listen,
        should_stop=run.should_stop,
    )
    best = next((entry for entry in progress.validations if entry["step"] == progress.best_step), {})
    labels: dict[str, Any] = {}
    if labelled is not None:
        mean_labels = [round(float(label), 4) for label in labelled.mean_labels()]
        labels = {"mean_labels": mean_labels, "labels_seconds": labelled.seconds}
    return {
        "round": rounds.round,
        "steps": progress.step,
        "best_step": progress.best_step,
        "validation": best,
        "validations": progress.validations,
        **labels,
        "seconds": round(progress.seconds - (0.0 if labelled is None else labelled.seconds), 1),
    }


def _labelled(
    instances: TrainingInstances, estimator: Estimator, *, tree: ItemTree, settings: TrainingSettings
) -> RectifiedInstances | SoftInstances:
    """The instances with labels that the estimator rectifies, hard or soft."""
    if settings.rectification == "soft":
        items, share = settings.soft_items, settings.soft_share
        return SoftInstances(instances, estimator=estimator, tree=tree, items=items, share=share)
    return RectifiedInstances(instances, estimator=estimator, tree=tree, rectification=settings.rectification)


def _relearn(run: _Run, model: PreferenceModel, rounds: Rounds) -> Relearned:
    """Place the items anew by the round that was just finished: its tree, and the targets it learned from."""
    settings, tree = run.config.tree, rounds.tree
    if _kernels_know(model, run.config):
        add_scores = native_candidate_scores(model, tree, settings=run.config.model)
    else:
        add_scores = torch_candidate_scores(model.eval(), tree)
    return relearn_tree(
        tree,
        run.instances_of_round(rounds.round - 1).with_one_target(),
        add_scores=add_scores,
        stride=settings.stride,
        instances_per_item=settings.instances_per_item,
        priority=by_regret if settings.assignment == "regret" else by_score,
        on_step=run.stop_while("learning the tree"),
    )


def train_estimator(
    dataset: Dataset,
    split: Split,
    *,
    config: Config,
    directory: Path | None,
    listen: Listener,
    should_stop: Callable[[], bool] = lambda: False,
) -> Estimator:
    """The estimator that rectified labels ask: the one that `directory` keeps for this data, split and settings, or a
    new one. InterruptedTraining when asked to stop; the next call goes on from there."""
    return _obtain_estimator(
        dataset, split, config=config, directory=directory, listen=listen, should_stop=should_stop
    ).estimator


def _obtain_estimator(
    dataset: Dataset,
    split: Split,
    *,
    config: Config,
    directory: Path | None,
    listen: Listener,
    should_stop: Callable[[], bool],
) -> TrainedEstimator:
    seed = config.training.seed if config.estimator.seed is None else config.estimator.seed
    users = _sample(split.validation, config=config, seed=seed)

    def validate(estimator: Estimator) -> float:
        recommend = by_scores(estimator.scores, history_length=estimator.history_length, num_items=len(dataset.items))
        metrics = evaluate(recommend, dataset, users, config=config, cutoffs=(20,))
        return metrics[SELECTION_METRIC]

    key = estimator_key(
        config.estimator,
        split=split,
        validation_users=users,
        data=dataset.fingerprint,
        history_length=config.model.history_length,
        horizon=[config.training.target_horizon, config.training.targets_per_history],
        seed=seed,
        protocol=describe_protocol(config),
    )
    return load_or_train_estimator(
        None if directory is None else EstimatorStore.at(directory, key),
        dataset.sequences,
        split,
        num_items=len(dataset.items),
        history_length=config.model.history_length,
        run=EstimatorRun(
            settings=config.estimator,
            horizon=_horizon(config, seed=seed),
            seed=seed,
            validate=validate if len(users) else None,
            listen=listen,
            should_stop=should_stop,
        ),
    )


def _validation(
    dataset: Dataset, users: HeldOut, *, tree: ItemTree, config: Config
) -> Callable[[PreferenceModel], Mapping[str, float]] | None:
    if len(users) == 0:
        return None
    sample = _sample(users, config=config, seed=config.training.seed)

    def validate(model: PreferenceModel) -> Mapping[str, float]:
        engine = Engine(model_arrays(model), tree, settings=config.model)
        recommend = by_beam(engine, beam_width=config.retrieval.beam_width)
        return evaluate(recommend, dataset, sample, config=config, cutoffs=(20,))

    return validate


def _sample(users: HeldOut, *, config: Config, seed: int) -> HeldOut:
    generator = numpy_generator(seed, "validation")
    return users.take(np.sort(generator.permutation(len(users))[: config.training.validation_users]))


def _kernels_know(model: PreferenceModel, config: Config) -> bool:
    """Whether the kernels can learn this model: batch statistics need a pass of their own and stay in torch."""
    return native.is_available() and model.node_table.device.type == "cpu" and config.model.normalisation != "batch"


def _order(dataset: Dataset, *, config: Config) -> Literal["random", "category", "clustering"]:
    """Which first order of the leaves to take; SettingsError where it needs categories and there are none."""
    has_categories = dataset.item_table["category"].null_count() < len(dataset.item_table)
    order = config.tree.order
    if order == "auto":
        if len(dataset.items) <= MOST_CLUSTERED_ITEMS:
            return "clustering"
        return "category" if has_categories else "random"
    if order == "category" and not has_categories:
        raise SettingsError(
            "tree.order = 'category' needs an item table with a column 'category'. Give one with --items, or choose "
            "tree.order = 'clustering' or 'random'."
        )
    return order
