"""From a log to a model: split, plant, then learn the model and the tree in turn. Here the parts of training meet."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from beamtree import native
from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut, Spans, Split
from beamtree.errors import SettingsError
from beamtree.evaluation.protocol import Questions, by_beam, evaluate
from beamtree.model.estimator import Estimator
from beamtree.model.preference import PreferenceModel, build_model
from beamtree.retrieval.engine import Engine
from beamtree.rivals.popularity import Popularity
from beamtree.training.candidate_scores import native_candidate_scores, torch_candidate_scores
from beamtree.training.checkpoint import RunIdentity, model_arrays
from beamtree.training.estimate import load_or_train_estimator
from beamtree.training.events import Listener, TreeRelearned
from beamtree.training.instances import TrainingInstances
from beamtree.training.labelled import RectifiedInstances
from beamtree.training.learner import Learner, TorchLearner
from beamtree.training.negatives import NegativeSampler, UniformNegatives, negatives_per_level
from beamtree.training.optimise import SELECTION_METRIC, CheckpointPlan, optimise
from beamtree.training.randomness import numpy_generator, seed_for
from beamtree.training.relearn import Relearned, relearn_tree
from beamtree.training.rounds import Rounds, load_rounds, round_seed, save_rounds
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
    estimation_seconds: float = field(default=0.0)

    def instances_of_round(self, round_number: int) -> TrainingInstances:
        """The training instances, with targets drawn for this round."""
        return replace(self.instances, seed=round_seed(self.config.training.seed, round_number))


def fit_model(
    dataset: Dataset,
    split: Split,
    *,
    config: Config,
    work: WorkDirectory | None,
    listen: Listener,
    should_stop: Callable[[], bool],
) -> Artefact:
    """Learn a preference model and a tree in turn; the artefact holds the weights and the tree that validated best."""
    started = time.monotonic()
    _order(dataset, config=config)
    instances = TrainingInstances(
        dataset.sequences,
        split.train,
        first_target=split.first_target,
        history_length=config.model.history_length,
        target_horizon=config.training.target_horizon,
        seed=config.training.seed,
    )
    run = _Run(dataset, split, config, work, listen, should_stop, instances)
    estimator = _estimator(run) if config.training.method == "dtr-t-rl" else None
    rounds = _learn_in_rounds(run, estimator)
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
            "estimation_seconds": round(run.estimation_seconds, 1),
            "seconds": round(time.monotonic() - started, 1),
        },
    )


def initial_tree(dataset: Dataset, train: Spans, *, config: Config) -> ItemTree:
    """The first tree, before anything is learned, in the order that the settings name."""
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
            order = clustering_order(vectors, branching=branching, generator=generator)
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
    if run.work is not None and run.work.resume and rounds_directory is not None:
        rounds = load_rounds(rounds_directory, identity=identity)
    if rounds is None:
        tree = initial_tree(run.dataset, run.split.train, config=config)
        model = build_model(config.model, tree, seed=seed_for(seed, "weights"))
        rounds = Rounds.first(tree, model_arrays(model))
        if rounds_directory is not None:
            save_rounds(rounds_directory, rounds, identity=identity)
    model = build_model(config.model, rounds.tree, seed=seed_for(seed, "weights"))
    while rounds.round < config.training.rounds:
        rounds.restore(model)
        report = _learn_round(run, model, rounds, estimator=estimator, identity=identity)
        rounds.finish(model, report, score=report["validation"].get(SELECTION_METRIC))
        if rounds.round < config.training.rounds:
            relearned = _relearn(run, model, rounds)
            rounds.replant(relearned.tree, travel=config.tree.moved_rows == "travel")
            report |= {
                "moved_share": relearned.moved_share,
                "score_before": relearned.score_before,
                "score_after": relearned.score_after,
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
    labels: dict[str, Any] = {}
    instances: TrainingInstances | RectifiedInstances = drawn
    if estimator is not None:
        instances = RectifiedInstances(
            drawn, estimator=estimator, tree=rounds.tree, rectification=settings.rectification
        )
        run.estimation_seconds += instances.seconds
        labels = {"mean_labels": [round(float(label), 4) for label in instances.mean_labels()]}
    plan = None
    if run.work is not None:
        directory = run.work.directory / f"round-{rounds.round}"
        plan = CheckpointPlan(directory, identity=identity, resume=run.work.resume)
    started = time.monotonic()
    progress = optimise(
        build_learner(model, rounds.tree, config=config),
        instances,
        settings=settings,
        validate=_validation(run.dataset, run.split.validation, tree=rounds.tree, config=run.config),
        plan=plan,
        listen=run.listen,
        should_stop=run.should_stop,
    )
    best = next((entry for entry in progress.validations if entry["step"] == progress.best_step), {})
    return {
        "round": rounds.round,
        "steps": progress.step,
        "best_step": progress.best_step,
        "validation": best,
        "validations": progress.validations,
        **labels,
        "seconds": round(time.monotonic() - started, 1),
    }


def _relearn(run: _Run, model: PreferenceModel, rounds: Rounds) -> Relearned:
    """Place the items anew by the round that was just finished: its tree, and the targets it learned from."""
    settings, tree = run.config.tree, rounds.tree
    if _kernels_know(model, run.config):
        add_scores = native_candidate_scores(model, tree, settings=run.config.model)
    else:
        add_scores = torch_candidate_scores(model.eval(), tree)
    return relearn_tree(
        tree,
        run.instances_of_round(rounds.round - 1),
        add_scores=add_scores,
        stride=settings.stride,
        instances_per_item=settings.instances_per_item,
        priority=by_regret if settings.assignment == "regret" else by_score,
    )


def train_estimator(
    dataset: Dataset, split: Split, *, config: Config, directory: Path | None, listen: Listener
) -> Estimator:
    """The estimator that rectified labels ask: the one kept in `directory` for this data and settings, or a new one."""
    users = _sample(split.validation, config=config)

    def validate(estimator: Estimator) -> float:
        metrics = evaluate(_by_estimator(estimator), dataset, users, config=config, cutoffs=(20,))
        return metrics[SELECTION_METRIC]

    return load_or_train_estimator(
        directory,
        dataset.sequences,
        split,
        num_items=len(dataset.items),
        history_length=config.model.history_length,
        settings=config.estimator,
        target_horizon=config.training.target_horizon,
        seed=config.training.seed,
        data_fingerprint=dataset.fingerprint,
        validate=validate if len(users) else None,
        listen=listen,
    )


def _estimator(run: _Run) -> Estimator:
    started = time.monotonic()
    directory = None if run.work is None else run.work.directory / "estimator"
    estimator = train_estimator(run.dataset, run.split, config=run.config, directory=directory, listen=run.listen)
    run.estimation_seconds += time.monotonic() - started
    return estimator


def _by_estimator(estimator: Estimator) -> Callable[[Questions, int], npt.NDArray[np.int32]]:
    """Recommendations by an estimator's own scores."""

    def recommend(questions: Questions, k: int) -> npt.NDArray[np.int32]:
        scores = estimator.scores(questions.histories(estimator.history_length))
        if questions.excluded_items is not None:
            items, offsets = questions.excluded_items
            scores[np.repeat(np.arange(len(scores)), np.diff(offsets)), items] = -np.inf
        found = np.full((len(scores), k), -1, dtype=np.int32)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
        is_allowed = np.isfinite(np.take_along_axis(scores, best, axis=1))
        found[:, : best.shape[1]] = np.where(is_allowed, best, -1)
        return found

    return recommend


def _validation(
    dataset: Dataset, users: HeldOut, *, tree: ItemTree, config: Config
) -> Callable[[PreferenceModel], Mapping[str, float]] | None:
    if len(users) == 0:
        return None
    sample = _sample(users, config=config)

    def validate(model: PreferenceModel) -> Mapping[str, float]:
        engine = Engine(model_arrays(model), tree, settings=config.model)
        recommend = by_beam(engine, beam_width=config.retrieval.beam_width)
        return evaluate(recommend, dataset, sample, config=config, cutoffs=(20,))

    return validate


def _sample(users: HeldOut, *, config: Config) -> HeldOut:
    generator = numpy_generator(config.training.seed, "validation")
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
