"""What a second machine gives: learning with two workers beside one, recommending with two actors beside two threads.

python -m benchmarks.cluster --json

Two Ray nodes of one CPU each on this machine, which has to be quiet: both cores are needed. Learning is the tower's
encoder on a random log, in the same global batches: one worker with one thread computes both parts of each, or two
workers compute one part each. The time of a step is the median, from update to update. Two
actors with a model each and one process with two threads make the same shards.

speedup_2_workers        seconds of a step with one worker over those with two
bytes_per_instance       what a worker sends in a step, over the positions of the whole batch
recommend_efficiency     users per second of two actors over those of one process with two threads
microseconds_per_row     of merging the touched rows of two workers and updating them, over their number

`benchmarks.cluster_cost` reads the JSON and says what follows from it for larger clusters.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from beamtree import Config, DeepTreeRetriever
from beamtree.cluster.connection import Cluster
from beamtree.cluster.learning import ClusterTraining
from beamtree.cluster.partition import partition_by_user
from beamtree.cluster.recommending import PARTITION, Job, ShardDone, ShardRecommender, recommend_everybody
from beamtree.config import LogSettings
from beamtree.data.split import split_none
from beamtree.model.next_item import NextItemModel
from beamtree.retrieval.request import RecommendOptions
from beamtree.training.checkpoint import Identity
from beamtree.training.estimate import sequence_learner
from beamtree.training.events import Event, WorkersDone
from beamtree.training.gradients import RowGradient
from beamtree.training.rows import RowAdam
from beamtree.training.schedule import epoch_schedule
from beamtree.training.trainer import CheckpointPlan, Trainer
from beamtree.training.windows import TrainingWindows
from benchmarks.estimator import HISTORY_LENGTH, HORIZON, SHAPES, random_sequences
from benchmarks.measure import report, take_turns

STORE_BYTES = 300 * 2**20
SHARDS = 16


@contextmanager
def two_nodes() -> Iterator[str]:
    """The address of two nodes of one CPU each, up while this lasts."""
    import ray
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes()
    # Ray lowers the priority of workers so that its own processes come first; on nodes of one CPU they would wait.
    of_the_head = {"_system_config": {"worker_niceness": 0}}
    try:
        for options in (of_the_head, {}):
            nodes.add_node(num_cpus=1, object_store_memory=STORE_BYTES, include_dashboard=False, **options)
        nodes.wait_for_nodes()
        ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
        yield str(nodes.address)
    finally:
        ray.shutdown()
        nodes.shutdown()


def trainer_of(folder: Path, *, items: int, positions: int, steps: int, listen: Any) -> Trainer:
    """The tower's encoder at its start, about to take so many steps over so many positions each."""
    sequences = random_sequences(replace(SHAPES["amazon-8cat"], users=8 * steps * positions // 100, items=items))
    windows = TrainingWindows.cut(sequences, split_none(sequences), length=HISTORY_LENGTH, horizon=HORIZON)
    settings = Config().estimator
    encoder = NextItemModel(
        settings, num_items=items, history_length=HISTORY_LENGTH, generator=torch.Generator().manual_seed(0)
    )
    a_window = float(windows.lengths.mean())
    batch_size = max(2, round(positions / a_window))
    schedule = epoch_schedule(
        len(windows),
        batch_size=batch_size,
        epochs=steps / -(-len(windows) // batch_size),
        learning_rate=settings.learning_rate,
        decay="constant",
        validations=1,
        patience=9,
        seed=0,
        remedy="",
    )
    return Trainer(
        "encoder",
        sequence_learner(encoder, windows=windows, seed=0),
        windows,
        schedule=schedule,
        validate=None,
        plan=CheckpointPlan(folder, Identity("benchmark"), resume=False, minutes=1e6),
        listen=listen,
    )


def measure_learning(address: str, *, items: int, positions: int, steps: int, turns: int) -> dict[str, Any]:
    """Seconds of a step by the number of workers, which take turns, and the bytes of a step.

    The median step of the fastest turn counts, of one worker as of two. Ray's own actors are still starting in the
    first seconds of a turn, on the cores of the workers: turns are long beside that.
    """
    done: dict[int, list[WorkersDone]] = {1: [], 2: []}
    for _ in range(turns):
        for workers in (1, 2):
            heard: list[Event] = []
            with tempfile.TemporaryDirectory() as folder:
                trainer = trainer_of(
                    Path(folder) / "run", items=items, positions=positions, steps=steps, listen=heard.append
                )
                ClusterTraining(Cluster(address, workers=workers, parts=2))(trainer)
            done[workers] += [event for event in heard if isinstance(event, WorkersDone)]
    of_turns = {str(workers): [1000.0 * turn.step_seconds for turn in heard] for workers, heard in done.items()}
    best = {workers: min(milliseconds) for workers, milliseconds in of_turns.items()}
    bytes_per_step = done[2][0].bytes_sent / done[2][0].steps
    return {
        "speedup_2_workers": best["1"] / best["2"],
        "milliseconds_per_step": best,
        "milliseconds_per_step_of_turns": of_turns,
        "bytes_per_step": bytes_per_step,
        "bytes_per_instance": bytes_per_step / positions,
    }


def measure_rows(*, items: int, rows: int, turns: int) -> float:
    """Microseconds per row that two workers sent: merged and updated by row-wise Adam, on one thread."""
    table = torch.randn(items, Config().estimator.width)
    adam = RowAdam.for_table(table, decoupled_decay=True, weight_decay=0.0)
    touched = [torch.randint(items, (rows,)).unique() for _ in range(2)]
    both = torch.cat(touched)
    values = torch.randn(len(both), table.shape[1])

    def update() -> None:
        merged = RowGradient.summed(both, values)
        adam.step(table, rows=merged.rows, gradients=merged.values, learning_rate=1e-3, step=1)

    return 1e6 * min(take_turns({"rows": update}, turns=turns)["rows"]) / len(both)


def random_log(users: int, *, items: int, each: int) -> pl.DataFrame:
    """So many interactions of each user with items of falling popularity."""
    generator = np.random.default_rng(0)
    chosen = (items * generator.random(users * each) ** 2).astype(np.int64)
    return pl.DataFrame(
        {"user_id": np.repeat(np.arange(users), each), "item_id": chosen, "timestamp": np.arange(users * each)}
    )


def measure_recommending(address: str, folder: Path, *, users: int, items: int) -> dict[str, Any]:
    """Users per second of two actors, and of one process with two threads, over the same shards."""
    import ray

    log, model = random_log(users, items=items, each=20), folder / "model"
    log.write_parquet(folder / "log.parquet")
    few = log.filter(pl.col("user_id") < min(users, 2000))
    config = Config.load(preset="small", assignments=["estimator.epochs=0.2", "estimator.recipe.validations=1"])
    DeepTreeRetriever(config).fit(few, progress=False).save(model)
    job = Job(model, str(folder / "log.parquet"), LogSettings(), RecommendOptions(k=20))
    finished: list[tuple[float, int]] = []

    def note(done: ShardDone | None, _total: int) -> None:
        if done is not None:
            finished.append((time.perf_counter(), done.users))

    recommend_everybody(Cluster(address, workers=2), job, folder / "actors", num_shards=SHARDS, on_shard=note)
    (begun, _), *later = finished[1:]  # both actors have loaded the model and made a shard by then
    actors = sum(count for _, count in later) / (later[-1][0] - begun)

    partition = partition_by_user(
        ray, job.log, settings=job.settings, folder=folder / "alone" / PARTITION, num_shards=SHARDS
    )
    alone = ShardRecommender(job, partition, folder / "alone", threads=2)
    alone.recommend(partition.shards[0])
    started = time.perf_counter()
    made = sum(alone.recommend(shard).users for shard in partition.shards[1:])
    threads = made / (time.perf_counter() - started)
    return {
        "recommend_efficiency": actors / threads,
        "users_per_second": {"two_actors": actors, "two_threads": threads},
    }


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--positions", type=int, default=3_200, help="of a global batch")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--users", type=int, default=40_000, help="to recommend for")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="beamtree-cluster-"))
    try:
        with two_nodes() as address:
            results = measure_learning(
                address, items=options.items, positions=options.positions, steps=options.steps, turns=options.turns
            )
            results["microseconds_per_row"] = measure_rows(items=options.items, rows=options.positions, turns=50)
            results |= measure_recommending(address, folder, users=options.users, items=options.items)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    report(settings, results, as_json=options.json)


if __name__ == "__main__":
    main()
