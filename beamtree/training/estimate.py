"""Training the next-item model (GRU4Rec or SASRec) on the training sequences, with early stopping."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor

from beamtree.config import EstimatorSettings
from beamtree.data.cooccurrence import cooccurrence_vectors
from beamtree.data.request_features import NO_FEATURES, DatasetFeatures
from beamtree.data.sequences import Sequences
from beamtree.data.split import Split
from beamtree.model.embedding_init import start_near
from beamtree.model.estimator import Estimator
from beamtree.model.features import FeatureVectors, RequestVectors
from beamtree.model.next_item import NextItemModel
from beamtree.model.proposal import Proposal
from beamtree.training.checkpoint import copied, has_checkpoint
from beamtree.training.estimator_store import EstimatorStore
from beamtree.training.events import ESTIMATOR, EstimatorAwaited, Listener
from beamtree.training.horizon import TargetHorizon
from beamtree.training.module_learner import BatchPart, ModuleLearner
from beamtree.training.randomness import numpy_generator, seed_for
from beamtree.training.schedule import estimator_schedule
from beamtree.training.trainer import CheckpointPlan, RunTraining, Trainer
from beamtree.training.windows import TrainingWindows, WindowBatch
from beamtree.types import AnyArray

CPU = torch.device("cpu")

POSITIONS_OF_A_PART = 400
"""The smallest size of a part of a batch: smaller matrices would be slow."""

ValidateEstimator = Callable[[Estimator], Mapping[str, float]]


@dataclass(frozen=True)
class EstimatorRun:
    """How an estimator is trained and watched.

    validate: its metrics on the validation users; None trains to the end of the schedule. should_stop: polled after
    every step; True raises InterruptedTraining once the state is saved. seen_count: whether items of the history can
    be negatives; False if they are never recommended. train: runs the training.
    """

    settings: EstimatorSettings
    horizon: TargetHorizon
    seed: int
    validate: ValidateEstimator | None
    listen: Listener
    checkpoint_minutes: float = 2.0
    should_stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    device: torch.device = CPU
    seen_count: bool = True
    train: RunTraining = Trainer.run


EstimatorT = TypeVar("EstimatorT", bound=Estimator, covariant=True)


@dataclass(frozen=True)
class TrainedEstimator(Generic[EstimatorT]):
    """A trained estimator, the seconds that its training took, and whether it was loaded instead of trained.

    optimiser: its arrays at the end of training, to continue from.
    """

    estimator: EstimatorT
    seconds: float
    is_reused: bool
    optimiser: Mapping[str, AnyArray] = field(default_factory=dict)


def load_or_train_estimator(
    store: EstimatorStore | None,
    sequences: Sequences,
    split: Split,
    *,
    num_items: int,
    history_length: int,
    run: EstimatorRun,
    content: FeatureVectors | None = None,
    features: DatasetFeatures = NO_FEATURES,
) -> TrainedEstimator[NextItemModel]:
    """The estimator in the store, or a new one; an interrupted training is resumed.

    content: the initial feature vectors of the items. features: of users and contexts. If another run is training the
    same estimator, this one waits for it.
    """
    estimator = NextItemModel(
        run.settings,
        num_items=num_items,
        history_length=history_length,
        generator=torch.Generator().manual_seed(seed_for(run.seed, "estimator")),
        content=content,
        offset=RequestVectors.of(features.read, width=run.settings.width),
    ).to(run.device)
    if store is None:
        return _train(estimator, sequences, split, run=run, store=None, features=features)
    kept = _kept(store, estimator)
    if kept is not None:
        return kept

    def tell(holder: str) -> None:
        run.listen(EstimatorAwaited(str(store.finished), holder))

    with store.claimed(on_wait=tell, should_stop=run.should_stop):
        return _kept(store, estimator) or _train(estimator, sequences, split, run=run, store=store, features=features)


def sequence_learner(
    encoder: NextItemModel, *, windows: TrainingWindows, seed: int, seen_count: bool = True
) -> ModuleLearner[NextItemModel]:
    """Trains an encoder with a full or sampled softmax over the items. seen_count: as in `EstimatorRun`.

    On the CPU a batch is divided among as many threads as torch uses now, unless it is small.
    """
    proposal = Proposal.half_by_frequency(windows.counts(len(encoder.items)))

    def loss(encoder: NextItemModel, batch: WindowBatch, generator: torch.Generator) -> Tensor:
        return encoder.loss(
            batch.inputs,
            batch.labels,
            lengths=batch.lengths,
            proposal=proposal,
            generator=generator,
            seen_count=seen_count,
            user_features=batch.user_features,
            context=batch.context,
        )

    def divide(batch: WindowBatch) -> list[BatchPart]:
        positions = len(batch.inputs)
        max_parts = torch.get_num_threads() if encoder.items.device.type == "cpu" else 1
        parts = batch.divided(min(max_parts, max(1, round(positions / POSITIONS_OF_A_PART))))
        return [BatchPart(part, len(part.inputs) / positions) for part in parts]

    return ModuleLearner(encoder, loss=loss, seed=seed, tables=encoder.sparse_tables, divide=divide)


def _kept(store: EstimatorStore, estimator: NextItemModel) -> TrainedEstimator[NextItemModel] | None:
    seconds = store.load(estimator)
    if seconds is None:
        return None
    return TrainedEstimator(estimator.eval(), seconds, is_reused=True, optimiser=store.optimiser())


def _train(
    estimator: NextItemModel,
    sequences: Sequences,
    split: Split,
    *,
    run: EstimatorRun,
    store: EstimatorStore | None,
    features: DatasetFeatures,
) -> TrainedEstimator[NextItemModel]:
    started, validate = run.clock(), run.validate
    windows = TrainingWindows.cut(
        sequences, split, length=estimator.history_length, horizon=run.horizon, features=features
    )
    is_resumed = store is not None and has_checkpoint(store.unfinished)
    if run.settings.recipe.embedding_init == "cooccurrence" and not is_resumed:
        num_items, size = estimator.items.shape
        stream = numpy_generator(run.seed, "item vectors")
        vectors = cooccurrence_vectors(sequences, split.train, num_items=num_items, size=size, generator=stream)
        start_near(estimator.items, vectors)
    plan = None
    if store is not None:
        plan = CheckpointPlan(store.unfinished, store.identity, resume=True, minutes=run.checkpoint_minutes)
    learner = sequence_learner(estimator, windows=windows, seed=run.seed, seen_count=run.seen_count)
    trainer = Trainer(
        ESTIMATOR,
        learner,
        windows,
        schedule=estimator_schedule(
            run.settings,
            num_items=len(estimator.items),
            num_windows=len(windows),
            num_positions=int(windows.lengths.sum()),
            seed=run.seed,
        ),
        validate=None if validate is None else lambda: validate(estimator),
        plan=plan,
        listen=run.listen,
        should_stop=run.should_stop,
        clock=run.clock,
    )
    seconds = run.train(trainer, seconds_before=run.clock() - started).seconds
    estimator.encoder.compact()
    optimiser = copied(learner.optimiser_arrays())
    if store is not None:
        store.save(estimator, seconds=seconds, optimiser=optimiser)
    return TrainedEstimator(estimator, seconds, is_reused=False, optimiser=optimiser)
