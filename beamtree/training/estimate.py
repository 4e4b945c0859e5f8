"""Training the estimator: SASRec on the training sequences, stopped by validation, and kept beside the checkpoints."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from beamtree.config import EstimatorSettings
from beamtree.data.sequences import Sequences, cut_histories
from beamtree.data.split import Split
from beamtree.model.estimator import Estimator, SasRec
from beamtree.storage import MANIFEST, bundle_file, map_arrays, read_manifest, write_arrays, write_bundle
from beamtree.training.events import EstimatorValidated, Listener
from beamtree.training.randomness import draws_below, numpy_generator, seed_for

FORMAT_VERSION = 1
WARMUP_STEPS = 100

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
ValidateEstimator = Callable[[Estimator], float]


def load_or_train_estimator(
    directory: Path | None,
    sequences: Sequences,
    split: Split,
    *,
    num_items: int,
    history_length: int,
    settings: EstimatorSettings,
    target_horizon: int = 1,
    seed: int,
    data_fingerprint: str,
    validate: ValidateEstimator | None,
    listen: Listener,
) -> SasRec:
    """The estimator for this data and these settings: the one kept in `directory` if it is that, else a new one.

    validate: the score of an estimator on the validation users, higher is better; None trains all epochs.
    """
    estimator = SasRec(
        settings,
        num_items=num_items,
        history_length=history_length,
        generator=torch.Generator().manual_seed(seed_for(seed, "estimator")),
    )
    key = _key(
        settings,
        history_length=history_length,
        target_horizon=target_horizon,
        seed=seed,
        data=data_fingerprint,
        split=split.description,
    )
    folder = None if directory is None else directory / f"sasrec-{key[:16]}"
    if folder is not None and (folder / MANIFEST).is_file():
        arrays = map_arrays(bundle_file(folder, read_manifest(folder), "estimator.safetensors"))
        estimator.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
        return estimator.eval()
    windows = TrainingWindows.cut(sequences, split, length=history_length)
    _train(
        estimator,
        windows,
        settings=settings,
        target_horizon=target_horizon,
        seed=seed,
        validate=validate,
        listen=listen,
    )
    if folder is not None:
        manifest = {"kind": "beamtree estimator", "format_version": FORMAT_VERSION, "key": key}
        write_bundle(folder, manifest, files={"estimator.safetensors": write_arrays(_arrays(estimator))})
    return estimator.eval()


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

    def batch(
        self, windows: Int64Array, *, target_horizon: int = 1, seed: int = 0, epoch: int = 0
    ) -> tuple[Int32Array, Int32Array]:
        """Inputs and targets (windows, length) of the numbered windows, -1 in front of both.

        A target is drawn from the next `target_horizon` items of the span after its input.
        """
        first, end = self.first[windows], self.end[windows]
        inputs = cut_histories(self.items, starts=first, ends=end - 1, length=self.length)
        position = end[:, None] - self.length + np.arange(self.length)
        if target_horizon > 1:
            choices = np.clip(self.span_end[windows][:, None] - position, 1, target_horizon)
            position = position + draws_below(choices, numbers=position, seed=seed, purpose="targets", step=epoch)
        return inputs, np.where(inputs >= 0, self.items[np.maximum(position, 0)], -1)


def _train(
    estimator: SasRec,
    windows: TrainingWindows,
    *,
    settings: EstimatorSettings,
    target_horizon: int,
    seed: int,
    validate: ValidateEstimator | None,
    listen: Listener,
) -> None:
    optimiser = torch.optim.AdamW(estimator.parameters(), lr=settings.learning_rate, weight_decay=1e-4)
    best_score, best, since_best, step = -np.inf, _arrays(estimator), 0, 0
    for epoch in range(settings.epochs):
        order = numpy_generator(seed, "estimator", epoch + 1).permutation(len(windows))
        total = 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(seed, "estimator", epoch + 1))
            estimator.train()
            for first in range(0, len(order), settings.batch_size):
                chosen = order[first : first + settings.batch_size]
                inputs, targets = windows.batch(chosen, target_horizon=target_horizon, seed=seed, epoch=epoch)
                loss = estimator.loss(torch.from_numpy(inputs).long(), torch.from_numpy(targets).long())
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(estimator.parameters(), 5.0)
                step += 1
                for group in optimiser.param_groups:
                    group["lr"] = settings.learning_rate * min(1.0, step / WARMUP_STEPS)
                optimiser.step()
                total += float(loss.detach()) * len(chosen)
        estimator.eval()
        score = 0.0 if validate is None else validate(estimator)
        is_best = validate is None or score > best_score
        listen(EstimatorValidated(epoch + 1, settings.epochs, loss=total / len(windows), score=score, is_best=is_best))
        if is_best:
            best_score, best, since_best = score, _arrays(estimator), 0
        else:
            since_best += 1
        if since_best >= settings.patience:
            break
    estimator.load_state_dict({name: torch.from_numpy(array) for name, array in best.items()})


def _arrays(estimator: SasRec) -> dict[str, npt.NDArray[Any]]:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in estimator.state_dict().items()}


def _key(settings: EstimatorSettings, **rest: Any) -> str:
    text = json.dumps({"settings": settings.model_dump(mode="json"), **rest}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
