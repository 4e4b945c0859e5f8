"""Learning SASRec, by the shape of the log: microseconds per position, making batches and updates included.

python -m benchmarks.estimator --json

Items and lengths of histories are like those of the logs that the shapes are named after; which item follows which is
random. CPU time counts all threads.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch

from beamtree.config import EstimatorSettings
from beamtree.data.sequences import Sequences
from beamtree.data.split import split_none
from beamtree.model.next_item import NextItemModel
from beamtree.training.estimate import sequence_learner
from beamtree.training.horizon import TargetHorizon
from beamtree.training.schedule import estimator_schedule
from beamtree.training.windows import TrainingWindows
from beamtree.types import Int32Array
from benchmarks.measure import report

HISTORY_LENGTH = 50
HORIZON = TargetHorizon(10, each=10)


@dataclass(frozen=True)
class Shape:
    """users: how many have interactions, as many as 2 and an exponential draw of the mean `beyond`."""

    users: int
    beyond: float
    items: int


SHAPES = {
    "ml-1m": Shape(users=2_000, beyond=163.0, items=3_706),
    "globo": Shape(users=40_000, beyond=7.5, items=46_033),
    "amazon-8cat": Shape(users=40_000, beyond=11.0, items=184_530),
}


def measure_estimator(shape: Shape, *, seconds: float) -> dict[str, float]:
    """CPU and wall time per position: that of the best step, and the median, of so many seconds of training."""
    settings = EstimatorSettings()
    sequences = random_sequences(shape)
    windows = TrainingWindows.cut(sequences, split_none(sequences), length=HISTORY_LENGTH, horizon=HORIZON)
    model = NextItemModel(
        settings, num_items=shape.items, history_length=HISTORY_LENGTH, generator=torch.Generator().manual_seed(0)
    )
    learner = sequence_learner(model, windows=windows, seed=0)
    num_positions = int(windows.lengths.sum())
    order = estimator_schedule(
        settings, num_items=shape.items, num_windows=len(windows), num_positions=num_positions, seed=0
    ).order

    def learn(step: int) -> tuple[float, float]:
        """CPU and wall time per position."""
        wall, cpu = time.perf_counter(), time.process_time()
        batch = windows.batch(order.instances_of(step))
        learner.apply(learner.gradients(batch, step=step), step=step, learning_rate=settings.learning_rate)
        return (time.process_time() - cpu) / len(batch.inputs), (time.perf_counter() - wall) / len(batch.inputs)

    started, taken = time.perf_counter(), [learn(0)]
    while time.perf_counter() - started < seconds:
        taken.append(learn(len(taken)))
    best, median = (statistic(np.array(taken), axis=0) * 1e6 for statistic in (np.min, np.median))
    return {
        "cpu_us_per_position": float(best[0]),
        "wall_us_per_position": float(best[1]),
        "median_cpu_us": float(median[0]),
        "median_wall_us": float(median[1]),
    }


def random_sequences(shape: Shape) -> Sequences:
    """Random users; a few items are met far more often than the others."""
    generator = np.random.default_rng(0)
    lengths = 2 + generator.exponential(shape.beyond, size=shape.users).astype(np.int64)
    items: Int32Array = (shape.items * generator.random(lengths.sum()) ** 3).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Sequences(items, offsets)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), action="append", help="default: all of them")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results = {
        name: measure_estimator(SHAPES[name], seconds=arguments.seconds) for name in arguments.shape or list(SHAPES)
    }
    report({"threads": arguments.threads}, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
