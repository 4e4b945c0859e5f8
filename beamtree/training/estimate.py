"""Training the estimator: SASRec on the training sequences, stopped by validation, and kept for the next run."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from beamtree.config import EstimatorSettings
from beamtree.data.cooccurrence import cooccurrence_vectors
from beamtree.data.sequences import Sequences, cut_histories
from beamtree.data.split import Split
from beamtree.errors import DivergedError, InterruptedTraining
from beamtree.model.embedding_init import start_near
from beamtree.model.estimator import Estimator, SasRec
from beamtree.model.proposal import Proposal
from beamtree.training.estimator_store import EstimatorProgress, EstimatorStore, estimator_arrays, load_arrays
from beamtree.training.events import EstimatorAwaited, EstimatorValidated, Listener
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import VERY_NEXT
from beamtree.training.randomness import numpy_generator, seed_for
from beamtree.types import NOTHING

WARMUP_STEPS = 100
SECONDS_BETWEEN_CHECKPOINTS = 120.0
CPU = torch.device("cpu")

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
ValidateEstimator = Callable[[Estimator], float]


@dataclass(frozen=True)
class EstimatorRun:
    """How an estimator is trained and watched.

    validate: the score of an estimator on the validation users, higher is better; None trains all epochs.
    should_stop: asked after every step; a yes raises InterruptedTraining once the state is kept.
    """

    settings: EstimatorSettings
    horizon: TargetHorizon
    seed: int
    validate: ValidateEstimator | None
    listen: Listener
    should_stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    device: torch.device = CPU


@dataclass(frozen=True)
class TrainedEstimator:
    """A trained estimator, the seconds that its training took, and whether it was found instead of trained now."""

    estimator: Estimator
    seconds: float
    is_reused: bool


def load_or_train_estimator(
    store: EstimatorStore | None,
    sequences: Sequences,
    split: Split,
    *,
    num_items: int,
    history_length: int,
    run: EstimatorRun,
) -> TrainedEstimator:
    """The estimator that the store keeps, or a new one, trained from where an interrupted run left it.

    While another run trains it, this one waits.
    """
    estimator = SasRec(
        run.settings,
        num_items=num_items,
        history_length=history_length,
        generator=torch.Generator().manual_seed(seed_for(run.seed, "estimator")),
    ).to(run.device)

    def start() -> None:
        if run.settings.first_vectors == "cooccurrence":
            size, stream = run.settings.width, numpy_generator(run.seed, "item vectors")
            vectors = cooccurrence_vectors(sequences, split.train, num_items=num_items, size=size, generator=stream)
            start_near(estimator.items, vectors)

    def train() -> TrainedEstimator:
        windows = TrainingWindows.cut(sequences, split, length=history_length)
        seconds = _train(estimator, windows, start=start, run=run, store=store)
        if store is not None:
            store.save(estimator, seconds=seconds)
        return TrainedEstimator(estimator.eval(), seconds, is_reused=False)

    if store is None:
        return train()
    kept = _kept(store, estimator)
    if kept is not None:
        return kept
    awaited = EstimatorAwaited(str(store.finished))
    with store.claimed(on_wait=lambda: run.listen(awaited), should_stop=run.should_stop):
        return _kept(store, estimator) or train()


def _kept(store: EstimatorStore, estimator: SasRec) -> TrainedEstimator | None:
    seconds = store.load(estimator)
    return None if seconds is None else TrainedEstimator(estimator.eval(), seconds, is_reused=True)


@dataclass(frozen=True)
class TrainingWindows:
    """The training spans cut, from their ends, into windows of `length` inputs, each with a target.

    Neighbouring windows share one item, so that every interaction after the first is next in line exactly once.
    Targets before the split's first one are not learned from, except inside later windows, where they are histories.
    first, end: the window's part of the flat items, the last being no input; span_end: where its span ends.
    """

    items: Int32Array
    first: Int64Array
    end: Int64Array
    span_end: Int64Array
    length: int

    @classmethod
    def cut(cls, sequences: Sequences, split: Split, *, length: int) -> "TrainingWindows":
        """Windows of all training spans."""
        first, ends, span_ends = [], [], []
        for start, end in zip(split.train.start, split.train.end, strict=True):
            for window_end in range(int(end), int(start) + split.first_target, -length):
                first.append(max(int(start), window_end - length - 1))
                ends.append(window_end)
                span_ends.append(int(end))
        as_array = partial(np.array, dtype=np.int64)
        return cls(sequences.items, as_array(first), as_array(ends), as_array(span_ends), length)

    def __len__(self) -> int:
        return len(self.first)

    def counts(self, num_items: int) -> Int64Array:
        """How often each item (items,) is next in line."""
        begun = np.bincount(self.first + 1, minlength=len(self.items) + 1)
        ended = np.bincount(self.end, minlength=len(self.items) + 1)
        times_wanted = np.cumsum(begun - ended)[:-1]
        return np.bincount(self.items, weights=times_wanted, minlength=num_items).astype(np.int64)

    def batch(
        self, windows: Int64Array, *, horizon: TargetHorizon = VERY_NEXT, epoch: int = 0
    ) -> tuple[Int32Array, Int32Array]:
        """Inputs and targets (windows, length) of the numbered windows, -1 in front of both.

        Several targets of each input are (windows, length, targets).
        """
        first, end = self.first[windows], self.end[windows]
        inputs = cut_histories(self.items, starts=first, ends=end - 1, length=self.length)
        position = end[:, None] - self.length + np.arange(self.length)
        ends = np.broadcast_to(self.span_end[windows][:, None], position.shape)
        targets = horizon.draw(self.items, np.maximum(position, 0), ends, numbers=position, epoch=epoch)
        targets = np.where((inputs >= 0)[:, :, None], targets, NOTHING)
        return inputs, targets[:, :, 0] if horizon.each == 1 else targets


def _train(
    estimator: SasRec,
    windows: TrainingWindows,
    *,
    start: Callable[[], None],
    run: EstimatorRun,
    store: EstimatorStore | None,
) -> float:
    """Train to the end or until validation stops improving, and leave the best weights; the seconds it took.

    start: gives a fresh estimator its first vectors.
    Everything random is a function of (seed, step), so that an interrupted training goes on to the same bytes.
    """
    settings = run.settings
    proposal = Proposal.half_by_frequency(windows.counts(len(estimator.items)))
    counted_at = kept_at = run.clock()
    optimiser = torch.optim.AdamW(estimator.parameters(), lr=settings.learning_rate, weight_decay=1e-4, fused=True)
    restored = None if store is None else store.restore(estimator, optimiser)
    if restored is None:
        start()
    progress, best = restored or (EstimatorProgress(), estimator_arrays(estimator))

    def keep() -> None:
        nonlocal counted_at, kept_at
        progress.seconds += run.clock() - counted_at
        counted_at = kept_at = run.clock()
        if store is not None:
            store.keep(estimator, optimiser, best=best, progress=progress)

    steps_per_epoch = -(-len(windows) // settings.batch_size)
    while progress.epoch < settings.epochs and progress.epochs_since_best < settings.patience:
        order = numpy_generator(run.seed, "estimator", progress.epoch + 1).permutation(len(windows))
        estimator.train()
        while progress.step_in_epoch < steps_per_epoch:
            first = progress.step_in_epoch * settings.batch_size
            chosen = order[first : first + settings.batch_size]
            loss = _step(estimator, optimiser, windows, chosen, proposal=proposal, progress=progress, run=run)
            progress.loss += loss * len(chosen)
            progress.step_in_epoch += 1
            progress.step += 1
            if run.should_stop():
                keep()
                raise InterruptedTraining(_interrupted(progress, steps_per_epoch, store))
            if run.clock() - kept_at >= SECONDS_BETWEEN_CHECKPOINTS:
                keep()
        estimator.eval()
        score = 0.0 if run.validate is None else run.validate(estimator)
        is_best = run.validate is None or progress.best_score is None or score > progress.best_score
        mean_loss = progress.loss / len(windows)
        progress.epoch, progress.step_in_epoch, progress.loss = progress.epoch + 1, 0, 0.0
        run.listen(EstimatorValidated(progress.epoch, settings.epochs, loss=mean_loss, score=score, is_best=is_best))
        if is_best:
            progress.best_score, best, progress.epochs_since_best = score, estimator_arrays(estimator), 0
        else:
            progress.epochs_since_best += 1
        keep()
    load_arrays(estimator, best)
    return progress.seconds


def _step(
    estimator: SasRec,
    optimiser: torch.optim.Optimizer,
    windows: TrainingWindows,
    chosen: Int64Array,
    *,
    proposal: Proposal,
    progress: EstimatorProgress,
    run: EstimatorRun,
) -> float:
    """Learn from the chosen windows; the loss before the update. DivergedError, and no update, where it is lost."""
    batch = windows.batch(chosen, horizon=run.horizon, epoch=progress.epoch)
    inputs, targets = (torch.from_numpy(part).to(run.device, torch.int64) for part in batch)
    with torch.random.fork_rng(devices=[run.device] if run.device.type == "cuda" else []):
        torch.manual_seed(seed_for(run.seed, "dropout", progress.step))
        loss = estimator.loss(inputs, targets, proposal=proposal)
        optimiser.zero_grad()
        loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(estimator.parameters(), 5.0)
    if not (torch.isfinite(loss) and torch.isfinite(norm)):
        raise DivergedError(
            f"The estimator's loss or gradient is not finite in step {progress.step}. Lower estimator.learning_rate "
            f"(now {run.settings.learning_rate:g}) and start again."
        )
    for group in optimiser.param_groups:
        group["lr"] = run.settings.learning_rate * min(1.0, (progress.step + 1) / WARMUP_STEPS)
    optimiser.step()
    return float(loss.detach())


def _interrupted(progress: EstimatorProgress, steps_per_epoch: int, store: EstimatorStore | None) -> str:
    step = f"step {progress.step_in_epoch} of {steps_per_epoch}"
    done = f"Stopped in epoch {progress.epoch + 1} of the estimator, after {step}"
    if store is None:
        return f"{done}. Nothing was saved: no folder for checkpoints was given."
    return f"{done}; its checkpoint is in {store.unfinished}. Go on with --resume."
