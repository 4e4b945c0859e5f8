"""The estimator that rectified labels ask: found by data, split and settings, or trained."""

from collections.abc import Callable
from pathlib import Path

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.evaluation.protocol import describe_protocol
from beamtree.fitting.validation import estimator_validation, sample_users
from beamtree.training.estimate import EstimatorRun, TrainedEstimator, load_or_train_estimator
from beamtree.training.estimator_store import EstimatorStore, estimator_key
from beamtree.training.events import Listener
from beamtree.training.horizon import TargetHorizon


def train_estimator(
    dataset: Dataset,
    split: Split,
    *,
    config: Config,
    directory: Path | None,
    listen: Listener,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainedEstimator:
    """The estimator that `directory` keeps for this data, split and settings, or a new one, kept there.

    InterruptedTraining when asked to stop; the next call goes on from there.
    """
    seed = config.training.seed if config.estimator.seed is None else config.estimator.seed
    users = sample_users(split.validation, config=config, seed=seed)
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
            horizon=TargetHorizon.of(config.training, seed=seed),
            seed=seed,
            validate=estimator_validation(dataset, users, config=config),
            listen=listen,
            should_stop=should_stop,
        ),
    )
