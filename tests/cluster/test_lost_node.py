"""A node that goes down as a whole, raylet and all its processes, in the middle of learning and of recommending."""

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from polars.testing import assert_frame_equal

from beamtree.cluster.connection import Cluster
from beamtree.cluster.recommending import Job, ShardDone, recommend_everybody
from beamtree.training.events import Resumed
from beamtree.training.gradients import Gradients
from beamtree.training.learner import Learner
from tests.cluster.conftest import PATIENCE, add_node, wait_for_free_cpus
from tests.cluster.test_learning import DIES_AT_STEP, Outcome, run
from tests.cluster.test_recommending import SHARDS, expected, files, job, model, written

__all__ = ["files", "job", "model"]  # fixtures


class WaitsForItsEnd:
    """A learner that says that its node may be taken down at a step, and waits there until it is."""

    def __init__(self, learner: Learner, *, node: str, tombstone: Path) -> None:
        self._learner = learner
        self._node = node
        self._tombstone = tombstone

    def gradients(self, batch: Any, *, step: int) -> Gradients:
        import ray

        if step // 2 == DIES_AT_STEP and ray.get_runtime_context().get_node_id() == self._node:
            self._tombstone.touch()
            time.sleep(PATIENCE)
        return self._learner.gradients(batch, step=step)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_learner":
            raise AttributeError(name)
        return getattr(self._learner, name)


@pytest.fixture
def doomed(nodes: Any) -> Iterator[Any]:
    """The node that is not the head; another one takes its place after the test."""
    [node] = nodes.worker_nodes
    wait_for_free_cpus(nodes)
    yield node
    if node in nodes.worker_nodes:
        nodes.remove_node(node, allow_graceful=False)
    add_node(nodes)


def test_learning_goes_on_where_there_is_still_room(
    nodes: Any, doomed: Any, two_nodes: Cluster, tmp_path: Path
) -> None:
    undisturbed = run(two_nodes, tmp_path / "undisturbed")
    tombstone, has_ended = tmp_path / "tombstone", Event()

    def take_down() -> None:
        while not has_ended.wait(0.05):
            if tombstone.exists():
                nodes.remove_node(doomed, allow_graceful=False)
                return

    taking_down = Thread(target=take_down)
    taking_down.start()
    try:
        lost: Outcome = run(
            two_nodes,
            tmp_path / "lost",
            wrap=lambda learner: WaitsForItsEnd(learner, node=doomed.node_id, tombstone=tombstone),
        )
    finally:
        has_ended.set()
        taking_down.join()
    assert doomed not in nodes.worker_nodes
    assert any(isinstance(event, Resumed) and event.step == DIES_AT_STEP for event in lost.events)
    assert lost.progress.step == undisturbed.progress.step
    assert lost.progress.best_step == undisturbed.progress.best_step
    assert lost.progress.smoothed_loss == pytest.approx(undisturbed.progress.smoothed_loss, rel=1e-4)
    for name, array in undisturbed.weights.items():
        np.testing.assert_allclose(lost.weights[name], array, atol=2e-5, rtol=1e-4)


def test_every_user_is_recommended_to_exactly_once(
    nodes: Any, doomed: Any, two_nodes: Cluster, job: Job, tmp_path: Path
) -> None:
    taken_down: list[int] = []

    def take_down(done: ShardDone | None, _total: int) -> None:
        if done is not None and not taken_down:
            taken_down.append(done.shard)
            nodes.remove_node(doomed, allow_graceful=False)

    made = recommend_everybody(two_nodes, job, tmp_path / "out", num_shards=SHARDS, on_shard=take_down)
    assert taken_down
    assert (made.shards, made.users) == (SHARDS, 100)
    assert_frame_equal(written(tmp_path / "out"), expected(job.model))
