"""From a log to a model: prepare, split, plant, learn, measure. The one place where the parts of training meet."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from beamtree import native
from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut, Spans, Split
from beamtree.errors import SettingsError
from beamtree.evaluation.protocol import by_beam, evaluate
from beamtree.model.preference import PreferenceModel, build_model
from beamtree.retrieval.engine import Engine
from beamtree.rivals.popularity import Popularity
from beamtree.training.checkpoint import RunIdentity, model_arrays
from beamtree.training.events import Listener
from beamtree.training.instances import TrainingInstances
from beamtree.training.learner import Learner, TorchLearner
from beamtree.training.negatives import NegativeSampler, UniformNegatives, negatives_per_level
from beamtree.training.optimise import CheckpointPlan, optimise
from beamtree.training.randomness import numpy_generator, seed_for
from beamtree.training.tree_negatives import TreeNegatives
from beamtree.tree.build import category_order, clustering_order, plant, random_order
from beamtree.tree.cooccurrence import cooccurrence_vectors
from beamtree.tree.item_tree import ItemTree

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkDirectory:
    """Where a run keeps its checkpoints, and whether it goes on from the one that is there."""

    directory: Path
    resume: bool


def fit_model(
    dataset: Dataset,
    split: Split,
    *,
    config: Config,
    work: WorkDirectory | None,
    listen: Listener,
    should_stop: Callable[[], bool],
) -> Artefact:
    """Learn a preference model over an initial tree; the artefact holds the weights that validated best."""
    started = time.monotonic()
    seed = config.training.seed
    tree = initial_tree(dataset, split.train, config=config)
    model = build_model(config.model, tree, seed=seed_for(seed, "weights"))
    learner = build_learner(model, tree, config=config)
    instances = TrainingInstances(
        dataset.sequences,
        split.train,
        first_target=split.first_target,
        history_length=config.model.history_length,
    )
    plan = None
    if work is not None:
        identity = RunIdentity.of(config, data_fingerprint=dataset.fingerprint)
        plan = CheckpointPlan(work.directory, identity=identity, resume=work.resume)
    progress = optimise(
        learner,
        instances,
        settings=config.training,
        validate=_validation(dataset, split.validation, tree=tree, config=config),
        plan=plan,
        listen=listen,
        should_stop=should_stop,
    )
    return Artefact(
        config=config,
        weights=model_arrays(model),
        tree=tree,
        popularity=Popularity.fit(dataset.sequences, split.train, num_items=len(dataset.items)).counts,
        item_table=dataset.item_table,
        data_fingerprint=dataset.fingerprint,
        training={
            "split": split.description,
            "instances": len(instances),
            "steps": progress.step,
            "best_step": progress.best_step,
            "validations": progress.validations,
            "seconds": round(time.monotonic() - started, 1),
        },
    )


def initial_tree(dataset: Dataset, train: Spans, *, config: Config) -> ItemTree:
    """The first tree, before anything is learned, in the order that the settings name."""
    generator = numpy_generator(config.training.seed, "leaves")
    num_items, branching = len(dataset.items), config.tree.branching
    match config.tree.order:
        case "random":
            order = random_order(num_items, generator=generator)
        case "category":
            order = category_order(_categories(dataset.item_table), generator=generator)
        case "auto" | "clustering":
            vectors = cooccurrence_vectors(
                dataset.sequences, train, num_items=num_items, size=config.model.embedding_dim, generator=generator
            )
            order = clustering_order(vectors, branching=branching, generator=generator)
    return plant(order, branching=branching)


def build_learner(model: PreferenceModel, tree: ItemTree, *, config: Config) -> Learner:
    """The fastest way of learning this model here: in the kernels on a CPU where they were compiled, else in torch."""
    settings = config.training
    counts = negatives_per_level(tree, negatives=settings.negatives, depth_slope=settings.depth_slope)
    if native.is_available() and model.node_table.device.type == "cpu" and config.model.normalisation != "batch":
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
    if settings.method == "dtr-t":
        sampler = TreeNegatives(model, tree, count=settings.negatives)
    return TorchLearner(model, tree, negatives=sampler, settings=settings)


def _validation(
    dataset: Dataset, users: HeldOut, *, tree: ItemTree, config: Config
) -> Callable[[PreferenceModel], Mapping[str, float]] | None:
    if len(users) == 0:
        return None
    generator = numpy_generator(config.training.seed, "validation")
    chosen = generator.permutation(len(users))[: config.training.validation_users]
    sample = users.take(np.sort(chosen))

    def validate(model: PreferenceModel) -> Mapping[str, float]:
        engine = Engine(model_arrays(model), tree, settings=config.model)
        recommend = by_beam(engine, beam_width=config.retrieval.beam_width)
        return evaluate(recommend, dataset, sample, config=config, cutoffs=(20,))

    return validate


def _categories(item_table: pl.DataFrame) -> pl.Series:
    if "category" not in item_table.columns or item_table["category"].null_count() == len(item_table):
        raise SettingsError(
            "tree.order = 'category' needs an item table with a column 'category'. Give one with --items, or choose "
            "tree.order = 'clustering' or 'random'."
        )
    return item_table["category"]
