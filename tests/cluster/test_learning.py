"""Learning on two nodes: what one machine learns, and what it learns when a worker is killed on the way."""

import os
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
import torch

from beamtree import Config, DeepTreeRetriever
from beamtree.cluster.connection import Cluster
from beamtree.cluster.learning import ClusterTraining
from beamtree.errors import DivergedError, InputError, InterruptedTraining
from beamtree.training.checkpoint import Identity
from beamtree.training.events import Event, Resumed, StepDone
from beamtree.training.gradients import Gradients
from beamtree.training.learner import Learner
from beamtree.training.trainer import CheckpointPlan, Progress, Trainer
from beamtree.types import AnyArray
from tests.cluster.test_data_parallel import encoder, schedule_for
from tests.cluster.workers import alone_here
from tests.small import Arrays, assert_same_bytes

DIES_AT_STEP = 5


class Outcome(NamedTuple):
    weights: Arrays
    optimiser: Arrays
    progress: Progress
    events: list[Event]


class Mortal:
    """A learner whose second worker is killed at a step, once; or one that gives a loss of infinity there."""

    def __init__(self, learner: Learner, *, tombstone: Path | None = None, diverges: bool = False) -> None:
        self._learner = learner
        self._tombstone = tombstone
        self._diverges = diverges

    def gradients(self, batch: Any, *, step: int) -> Gradients:
        global_step, part = divmod(step, 2)
        is_due = global_step == DIES_AT_STEP and part == 1
        if is_due and self._tombstone is not None and not self._tombstone.exists():
            self._tombstone.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        found = self._learner.gradients(batch, step=step)
        return replace(found, loss=float("inf")) if is_due and self._diverges else found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_learner":
            raise AttributeError(name)
        return getattr(self._learner, name)


def run(
    cluster: Cluster,
    folder: Path,
    *,
    should_stop: Any = lambda: False,
    resume: bool = False,
    wrap: Callable[[Learner], Any] = lambda learner: learner,
) -> Outcome:
    events = list[Event]()
    trainer = trainer_in(folder, events, should_stop=should_stop, resume=resume, wrap=wrap)
    progress, learner = ClusterTraining(cluster)(trainer), trainer.learner
    return Outcome(learner.model_arrays(), learner.optimiser_arrays(), progress, events)


def trainer_in(
    folder: Path,
    events: list[Event],
    *,
    should_stop: Any = lambda: False,
    resume: bool = False,
    wrap: Callable[[Learner], Any] = lambda learner: learner,
) -> Trainer:
    """Its checkpoints are in the folder, and what happens goes to the events."""
    setting = encoder()
    learner = setting.learner
    return Trainer(
        "model",
        wrap(learner),
        setting.instances,
        schedule=schedule_for(setting),
        validate=lambda: validation(learner.model_arrays()),
        plan=CheckpointPlan(folder / "run", Identity("data"), resume=resume, minutes=0.0),
        listen=events.append,
        should_stop=should_stop,
    )


def validation(weights: Mapping[str, AnyArray]) -> dict[str, float]:
    return {"f@20": float(np.abs(weights["items"]).sum())}


@pytest.fixture(scope="module")
def undisturbed(two_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(two_nodes, tmp_path_factory.mktemp("undisturbed"))


def test_two_nodes_learn_what_one_process_learns(undisturbed: Outcome) -> None:
    from tests.cluster.test_data_parallel import assert_close, learn

    alone = alone_here(lambda: learn(encoder))
    assert undisturbed.progress.step == alone.progress.step
    assert_close(undisturbed.optimiser, alone.optimiser)
    steps = [event.step for event in undisturbed.events if isinstance(event, StepDone)]
    assert steps == list(range(1, undisturbed.progress.step + 1))


def test_a_killed_worker_costs_nothing_but_time(two_nodes: Cluster, undisturbed: Outcome, tmp_path: Path) -> None:
    killed = run(two_nodes, tmp_path, wrap=lambda learner: Mortal(learner, tombstone=tmp_path / "killed"))
    assert (tmp_path / "killed").exists()
    assert any(isinstance(event, Resumed) and event.step == DIES_AT_STEP for event in killed.events)
    assert_same_bytes(killed.weights, undisturbed.weights)
    assert_same_bytes(killed.optimiser, undisturbed.optimiser)
    assert replace(killed.progress, seconds=0.0) == replace(undisturbed.progress, seconds=0.0)
    assert not (tmp_path / "run.ray").exists()


def test_a_stopped_run_goes_on_with_any_number_of_workers(
    two_nodes: Cluster, undisturbed: Outcome, tmp_path: Path
) -> None:
    """Asked to stop, both workers stop after the same step; one worker, three, or a process without a cluster go on."""
    stopped = tmp_path / "stopped"
    with pytest.raises(InterruptedTraining, match=r"Go on with --resume"):
        run(two_nodes, stopped, should_stop=lambda: True)
    for name in ("one", "three", "alone"):
        shutil.copytree(stopped, tmp_path / name)
    one = run(replace(two_nodes, workers=1, parts=2), tmp_path / "one", resume=True)
    three = run(replace(two_nodes, workers=3), tmp_path / "three", resume=True)
    alone = trainer_in(tmp_path / "alone", events := list[Event](), resume=True).run()
    for heard in (one.events, three.events, events):
        (resumed,) = [event for event in heard if isinstance(event, Resumed)]
        assert 0 < resumed.step < undisturbed.progress.step
    np.testing.assert_allclose(one.weights["items"], undisturbed.weights["items"], atol=2e-5, rtol=1e-4)
    assert one.progress.step == three.progress.step == alone.step == undisturbed.progress.step


def test_what_diverges_is_not_started_again(two_nodes: Cluster, tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=f"became inf at step {DIES_AT_STEP + 1}"):
        run(two_nodes, tmp_path, wrap=lambda learner: Mortal(learner, diverges=True))


def test_a_run_without_a_folder_or_room_is_refused(two_nodes: Cluster, tmp_path: Path) -> None:
    setting = encoder()
    trainer = Trainer(
        "model",
        setting.learner,
        setting.instances,
        schedule=schedule_for(setting),
        validate=None,
        plan=None,
        listen=lambda _: None,
    )
    with pytest.raises(InputError, match="work_dir"):
        ClusterTraining(two_nodes)(trainer)
    plan = CheckpointPlan(tmp_path, Identity("data"), resume=False, minutes=1.0)
    with pytest.raises(InputError, match="9 workers with 1 CPUs each do not fit: the cluster has 4 CPUs"):
        ClusterTraining(replace(two_nodes, workers=9))(replace(trainer, plan=plan))


def log_of_rings() -> pl.DataFrame:
    """A hundred users, each of whom goes around one of four rings of forty items, thirty steps from somewhere on."""
    starts = np.random.default_rng(7).integers(0, 40, size=100)
    rows = [
        (user, 40 * (user % 4) + int(start + moment) % 40, moment)
        for user, start in enumerate(starts)
        for moment in range(30)
    ]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")


def test_a_fit_with_two_workers_is_a_fit_with_two_threads(two_nodes: Cluster, tmp_path: Path) -> None:
    """The same decisions, split and steps: memory to the bit, learned weights up to rounding, metrics equal."""
    config = Config.load(
        preset="small",
        assignments=[
            "estimator.epochs=4",
            "estimator.width=16",
            "estimator.recipe.batch_positions=900",
            "estimator.recipe.validations=2",
        ],
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        here = DeepTreeRetriever(config).fit(log_of_rings(), progress=False)
    finally:
        torch.set_num_threads(threads)
    there = DeepTreeRetriever(config).fit(log_of_rings(), cluster=two_nodes, work_dir=tmp_path / "work", progress=False)
    left, right = here.recommender.artefact, there.recommender.artefact
    assert left.training["split"] == right.training["split"]
    assert left.metrics == right.metrics
    assert left.weights.keys() == right.weights.keys()
    counted = [name for name in left.weights if name.startswith("memory/") and "weights" not in name]
    assert_same_bytes({name: left.weights[name] for name in counted}, {name: right.weights[name] for name in counted})
    for name, array in left.weights.items():
        if name.startswith("tower/"):  # on average: where a gradient is almost 0, Adam makes much of its rounding
            assert np.abs(array - right.weights[name]).mean() < 3e-2 * (1e-2 + np.abs(array).mean()), name


def test_a_fit_on_a_cluster_needs_a_folder() -> None:
    with pytest.raises(InputError, match="give work_dir"):
        DeepTreeRetriever(preset="small").fit(log_of_rings(), cluster="auto")
