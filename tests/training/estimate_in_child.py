"""A real process that obtains a small estimator: python -m tests.training.estimate_in_child FOLDER

Prints one word for each thing that happens and, after each epoch, waits for a line on standard input before it goes on.
The last line says whether the estimator was found, and ends with a digest of its weights.
"""

import hashlib
import sys
from pathlib import Path

import torch

from beamtree.data.split import split_none
from beamtree.model.next_item import NextItemModel
from beamtree.training.estimate import EstimatorRun, TrainedEstimator, load_or_train_estimator
from beamtree.training.estimator_store import EstimatorStore, estimator_key
from beamtree.training.events import EstimatorAwaited, Event, Validated
from beamtree.training.horizon import TargetHorizon
from beamtree.training.module_arrays import module_arrays
from tests.small import encoder_settings
from tests.training.runs import RING

SETTINGS = encoder_settings(width=8, layers=1, epochs=3, batch_positions=16, validations=3)


def store_in(directory: Path) -> EstimatorStore:
    split = split_none(RING)
    return EstimatorStore.at(directory, estimator_key(SETTINGS, split=split, validation_users=split.validation))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def obtain(directory: Path) -> TrainedEstimator[NextItemModel]:
    def listen(event: Event) -> None:
        match event:
            case EstimatorAwaited():
                say("waiting")
            case Validated():
                say(f"epoch {event.epoch:.0f}")
                sys.stdin.readline()

    run = EstimatorRun(
        settings=SETTINGS, horizon=TargetHorizon(), seed=3, validate=lambda _: {"f@20": 0.0}, listen=listen
    )
    return load_or_train_estimator(store_in(directory), RING, split_none(RING), num_items=8, history_length=4, run=run)


def digest(trained: TrainedEstimator[NextItemModel]) -> str:
    assert isinstance(trained.estimator, NextItemModel)
    arrays = sorted(module_arrays(trained.estimator).items())
    return hashlib.sha256(b"".join(array.tobytes() for _, array in arrays)).hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = obtain(Path(sys.argv[1]))
    say(f"{'found' if found.is_reused else 'trained'} {digest(found)}")
