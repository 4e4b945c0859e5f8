"""Fit a model on a log: read the tables, learn on this machine or on a cluster, and measure the test users."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from beamtree.cluster.connection import Cluster, as_cluster, connected
from beamtree.cluster.reading import forget_partitions, read_log_on_cluster
from beamtree.config import Config
from beamtree.data.interactions import InteractionLog, read_log
from beamtree.data.items import read_items
from beamtree.data.prepare import PreparedLog, prepare_log
from beamtree.data.split import Split
from beamtree.data.tables import Source
from beamtree.data.users import read_users
from beamtree.errors import InputError, SettingsError
from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.protocol import evaluate, split_dataset
from beamtree.fitting.backend import LOCAL, FitBackend
from beamtree.fitting.estimator import MakeEstimator
from beamtree.fitting.fit import fit_model
from beamtree.fitting.run import WorkDirectory
from beamtree.model.next_item import NextItemModel
from beamtree.model.part import MakePart
from beamtree.recommender.fitted import Fitted
from beamtree.recommender.listening import listening
from beamtree.retrieval.recommender import Recommender
from beamtree.training.budget import explain_partial_epochs
from beamtree.training.estimate import TrainedEstimator
from beamtree.training.events import EpochCutShort, Listener, LogPrepared
from beamtree.training.exclusive import claimed_folder
from beamtree.training.interrupt import stop_requests
from beamtree.training.strategies import Strategies
from beamtree.updating.state import state_of_fit


def fit_log(
    interactions: InteractionLog | Source,
    items: Source | None,
    *,
    users: Source | None,
    config: Config,
    parts: Mapping[str, MakePart],
    work_dir: str | Path | None,
    resume: bool,
    estimator_cache: str | Path | None,
    estimator: MakeEstimator | None,
    strategies: Strategies | None,
    cluster: Cluster | str | None,
    progress: bool | None,
    listen: Listener | None,
) -> Fitted:
    """Fit on a log and evaluate on the test users; see `DeepTreeRetriever.fit`. config: as given."""
    if cluster is not None and work_dir is None:
        raise InputError("A fit on a cluster needs a folder for checkpoints that all nodes share: give work_dir.")
    if items is None:
        _refuse_settings_that_need_items(config)
    item_table = None if items is None else read_items(items, columns=config.log.item_columns)
    log = _read(interactions, config, cluster=cluster, work_dir=work_dir, resume=resume)
    user_table = None if users is None else read_users(users, columns=config.log.interaction_columns)
    if user_table is None and config.log.user_features:
        raise SettingsError("log.features names columns of a user table: give that too, users=... (--users).")
    prepared = prepare_log(log, config=config, items=item_table, users=user_table)
    config, dataset = prepared.config, prepared.dataset
    chosen = Strategies.of(config) if strategies is None else strategies
    work = None if work_dir is None else WorkDirectory(Path(work_dir), resume=resume)
    claim = nullcontext() if work is None else claimed_folder(work.directory, otherwise="give another work_dir")
    encoders: list[TrainedEstimator[NextItemModel]] = []
    with (
        listening(listen, progress=progress) as say,
        claim,
        _computing(cluster, config=config) as backend,
        stop_requests() as should_stop,  # after Ray, which takes signals for itself
    ):
        split = _split(prepared, strategies=chosen, say=say)
        artefact = fit_model(
            dataset,
            split,
            config=config,
            work=work,
            listen=say,
            should_stop=should_stop,
            estimator_cache=None if estimator_cache is None else Path(estimator_cache),
            estimator=estimator,
            parts=parts,
            strategies=chosen,
            on_encoder=encoders.append,
            backend=backend,
        )
    artefact = replace(artefact, training={**artefact.training, "log": asdict(prepared.profile)})
    recommender, metrics = Recommender(artefact, parts=parts), None
    if len(split.test):
        metrics = evaluate(
            BeamSearch(recommender.engine, config.retrieval.beam_width), dataset, split.test, config=config
        )
        recommender = Recommender(replace(artefact, metrics={"test": dict(metrics)}), parts=parts)
    if cluster is not None and work_dir is not None:
        forget_partitions(Path(work_dir))
    return Fitted(recommender, log, user_table, dataset, metrics, state=state_of_fit(dataset, encoders))


def _read(
    interactions: InteractionLog | Source,
    config: Config,
    *,
    cluster: Cluster | str | None,
    work_dir: str | Path | None,
    resume: bool,
) -> InteractionLog:
    if cluster is None or work_dir is None or isinstance(interactions, InteractionLog):
        return read_log(interactions, config.log)
    return read_log_on_cluster(cluster, interactions, config.log, work_dir=Path(work_dir), resume=resume)


def _split(prepared: PreparedLog, *, strategies: Strategies, say: Listener) -> Split:
    """The split, after reporting what was read and which budgets cut epochs short.

    DataError, before any training, if no item of the held-out users can be recommended.
    """
    dataset, config = prepared.dataset, prepared.config
    say(LogPrepared(tuple(prepared.lines())))
    split = split_dataset(dataset, config=config)
    for held_out in (split.validation, split.test):
        reachable_labels(held_out, dataset.sequences, config=config)
    for line in explain_partial_epochs(dataset, split, config=config, strategies=strategies):
        say(EpochCutShort(line))
    return split


def _refuse_settings_that_need_items(config: Config) -> None:
    """SettingsError, before any work, for settings that make no sense without an item table."""
    asked = {"data.catalogue": config.data.catalogue == "items", "tree.order": config.tree.order == "category"}
    needy = [name for name, needs_items in asked.items() if needs_items]
    if needy:
        raise SettingsError(
            f"{' and '.join(needy)} need an item table. Give one with --items (items=...), or choose other values."
        )


@contextmanager
def _computing(cluster: Cluster | str | None, *, config: Config) -> Iterator[FitBackend]:
    """The backend of a fit: this process, or a cluster that is connected meanwhile."""
    if cluster is None:
        yield LOCAL
        return
    chosen = as_cluster(cluster)
    with connected(chosen):
        from beamtree.cluster.fitting import cluster_backend
        from beamtree.fitting.computation import learning_device

        yield cluster_backend(chosen, uses_gpu=learning_device(config).type == "cuda")
