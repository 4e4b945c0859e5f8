"""A process that no cluster knows of yet: how it reaches one, what it says where there is none, and what is left of a
fit whose driver dies."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beamtree import DeepTreeRetriever
from tests.cli.beamtree_command import Command
from tests.cluster.conftest import ROOT, wait_for_free_cpus
from tests.cluster.test_learning import log_of_rings

SMALL = [
    "estimator.epochs=4",
    "estimator.width=16",
    "estimator.recipe.batch_positions=900",
    "estimator.recipe.validations=2",
]


def in_a_new_process(code: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A program, with the repository's modules."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_listens_at_the_address() -> None:
    """Said at once, and not after the quarter of an hour for which Ray would try."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody else gets this port meanwhile, and nobody listens at it
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code = "import sys; from beamtree.cluster.connection import *; connected(Cluster(sys.argv[1])).__enter__()"
        tried = in_a_new_process(code, address)
    assert f"There is no Ray cluster at '{address}'" in tried.stderr
    assert "ray start" in tried.stderr


DIE_AFTER_A_VALIDATION = """
import os, signal, sys
from beamtree import Config, DeepTreeRetriever
from beamtree.cluster.connection import Cluster
from beamtree.training.events import StepDone, Validated

validated = []

def listen(event):
    if isinstance(event, Validated):
        validated.append(event)
    if validated and isinstance(event, StepDone):  # a step after it: the checkpoint has been written in between
        os.kill(os.getpid(), signal.SIGKILL)

log, out, *settings = sys.argv[1:]
DeepTreeRetriever(Config.load(preset="small", assignments=settings)).fit(
    log,
    cluster=Cluster("auto", workers=2),
    work_dir=out + ".checkpoint",
    estimator_cache=out + ".estimator",
    listen=listen,
)
"""


def test_a_fit_whose_driver_was_killed_is_resumed_without_a_cluster(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver finds the cluster by itself: `auto`."""
    log, out = tmp_path / "log.parquet", tmp_path / "model"
    log_of_rings().write_parquet(log)
    killed = in_a_new_process(DIE_AFTER_A_VALIDATION, str(log), str(out), *SMALL, RAY_ADDRESS=nodes.address)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    wait_for_free_cpus(nodes)
    settings = [word for setting in SMALL for word in ("--set", setting)]
    asked = ["fit", str(log), "--preset", "small", *settings, "--out", str(out), "--resume"]
    resumed = Command(monkeypatch, capsys)(*asked)
    assert resumed.code == 0, resumed.err
    assert "Resumed after step" in resumed.message
    assert DeepTreeRetriever.load(out).recommender.artefact.metrics["test"]["f@20"] > 0.3
