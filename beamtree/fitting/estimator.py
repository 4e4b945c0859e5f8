"""The next-item model behind rectified labels and the tower: loaded if it was trained before, else trained."""

import time
from collections.abc import Callable
from pathlib import Path

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.features import Features, FeatureSchema
from beamtree.data.split import Split
from beamtree.evaluation.protocol import describe_protocol
from beamtree.fitting.computation import learning_device
from beamtree.fitting.validation import estimator_validation, sample_users
from beamtree.model.estimator import Estimator
from beamtree.model.features import FeatureVectors
from beamtree.model.next_item import NextItemModel
from beamtree.training.estimate import EstimatorRun, TrainedEstimator, load_or_train_estimator
from beamtree.training.estimator_store import EstimatorStore, estimator_key
from beamtree.training.events import Listener
from beamtree.training.horizon import TargetHorizon
from beamtree.training.trainer import RunTraining, Trainer

MakeEstimator = Callable[[Dataset, Split], Estimator]
"""Makes a custom estimator; it scores the items of the data set, in their dense order."""


def estimator_store(dataset: Dataset, split: Split, *, config: Config, directory: Path) -> EstimatorStore:
    """The place in `directory` of the estimator for this data, split and settings."""
    seed, (_, features) = config.training.seed, item_features(dataset, config=config)
    key = estimator_key(
        config.estimator,
        split=split,
        validation_users=sample_users(split.validation, config=config, seed=seed),
        data=dataset.fingerprint,
        history_length=config.encoder_history,
        horizon=config.training.target_horizon,
        seed=seed,
        protocol=describe_protocol(config),
        **({} if features is None else {"features": features.digest()}),
        **({"request_features": dataset.features.digest()} if dataset.features else {}),
    )
    return EstimatorStore.at(directory, key)


def make_estimator(make: MakeEstimator, dataset: Dataset, split: Split) -> TrainedEstimator[Estimator]:
    """A custom estimator, and the seconds that it took."""
    started = time.monotonic()
    estimator = make(dataset, split)
    return TrainedEstimator(estimator, time.monotonic() - started, is_reused=False)


def train_estimator(
    dataset: Dataset,
    split: Split,
    *,
    config: Config,
    directory: Path | None,
    listen: Listener,
    should_stop: Callable[[], bool] = lambda: False,
    train: RunTraining = Trainer.run,
) -> TrainedEstimator[NextItemModel]:
    """The estimator that `directory` holds for this data, split and settings, or a new one, saved there.

    InterruptedTraining on a stop request; the next call resumes. train: runs the training.
    """
    seed, (schema, features) = config.training.seed, item_features(dataset, config=config)
    users = sample_users(split.validation, config=config, seed=seed)
    return load_or_train_estimator(
        None if directory is None else estimator_store(dataset, split, config=config, directory=directory),
        dataset.sequences,
        split,
        num_items=len(dataset.items),
        history_length=config.encoder_history,
        run=EstimatorRun(
            settings=config.estimator,
            horizon=TargetHorizon.of(config.training, seed=seed),
            seed=seed,
            validate=estimator_validation(dataset, users, config=config),
            device=learning_device(config),
            listen=listen,
            checkpoint_minutes=config.training.schedule.checkpoint_minutes,
            should_stop=should_stop,
            train=train,
        ),
        content=None
        if features is None
        else FeatureVectors(features, num_rows=schema.num_rows, width=config.estimator.width),
        features=dataset.features,
    )


def item_features(dataset: Dataset, *, config: Config) -> tuple[FeatureSchema, Features | None]:
    """The item features that the settings ask for; None if there are none."""
    schema = FeatureSchema()
    if config.estimator.item_features:
        schema = FeatureSchema.infer(dataset.item_table, config.log.item_features)
    return schema, schema.encode(dataset.item_table) if schema else None
