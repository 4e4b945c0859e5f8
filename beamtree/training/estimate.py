"""Training the estimator: SASRec on the training sequences, stopped by validation, and kept beside the checkpoints."""

import hashlib
import json
from collections.abc import Callable
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
from beamtree.training.randomness import numpy_generator, seed_for

FORMAT_VERSION = 1
WARMUP_STEPS = 100

Int32Array = npt.NDArray[np.int32]
ValidateEstimator = Callable[[Estimator], float]


def load_or_train_estimator(
    directory: Path | None,
    sequences: Sequences,
    split: Split,
    *,
    num_items: int,
    history_length: int,
    settings: EstimatorSettings,
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
    key = _key(settings, history_length=history_length, seed=seed, data=data_fingerprint, split=split.description)
    folder = None if directory is None else directory / f"sasrec-{key[:16]}"
    if folder is not None and (folder / MANIFEST).is_file():
        arrays = map_arrays(bundle_file(folder, read_manifest(folder), "estimator.safetensors"))
        estimator.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
        return estimator.eval()
    windows = training_windows(sequences, split, length=history_length)
    _train(estimator, windows, settings=settings, seed=seed, validate=validate, listen=listen)
    if folder is not None:
        manifest = {"kind": "beamtree estimator", "format_version": FORMAT_VERSION, "key": key}
        write_bundle(folder, manifest, files={"estimator.safetensors": write_arrays(_arrays(estimator))})
    return estimator.eval()


def training_windows(sequences: Sequences, split: Split, *, length: int) -> Int32Array:
    """The training spans cut, from their ends, into windows (windows, length + 1), padded in front with -1.

    Neighbouring windows share one item, so that every interaction after the first is a target exactly once. Targets
    before the split's first one are not learned from, except inside later windows, where they are histories.
    """
    starts, ends = [], []
    for start, end in zip(split.train.start, split.train.end, strict=True):
        for window_end in range(int(end), int(start) + split.first_target, -length):
            starts.append(max(int(start), window_end - length - 1))
            ends.append(window_end)
    return cut_histories(
        sequences.items,
        starts=np.array(starts, dtype=np.int64),
        ends=np.array(ends, dtype=np.int64),
        length=length + 1,
    )


def _train(
    estimator: SasRec,
    windows: Int32Array,
    *,
    settings: EstimatorSettings,
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
                batch = torch.from_numpy(windows[order[first : first + settings.batch_size]]).long()
                targets = torch.where(batch[:, :-1] >= 0, batch[:, 1:], -1)
                loss = estimator.loss(batch[:, :-1], targets)
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(estimator.parameters(), 5.0)
                step += 1
                for group in optimiser.param_groups:
                    group["lr"] = settings.learning_rate * min(1.0, step / WARMUP_STEPS)
                optimiser.step()
                total += float(loss.detach()) * len(batch)
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
