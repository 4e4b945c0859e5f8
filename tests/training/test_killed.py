"""A process that is killed at any moment and started again ends with the bytes of one that never was."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beamtree.artefact import load_artefact
from beamtree.errors import ArtefactError
from beamtree.storage import read_manifest
from tests.small import assert_same_bytes
from tests.training.fit_in_child import ATTENTION_FEATURES, FEATURES, fit

ROOT = Path(__file__).parents[2]


def start(method: str, work: Path, out: Path, *, steps: int = 0) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.training.fit_in_child", method, str(work), str(out), str(steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BEAMTREE_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE)


def steps_on_disk(work: Path) -> int:
    """Steps that the checkpoints of all learners tell of, read while somebody may be writing or removing them."""
    total = 0
    for folder, _, files in os.walk(work):  # passes over folders that are gone
        if "manifest.json" not in files:
            continue
        try:
            total += read_manifest(Path(folder)).get("progress", {}).get("step", 0)
        except ArtefactError:
            continue
    return total


def kill_after(steps: int, *, method: str, work: Path, out: Path) -> int:
    """Let a process take so many more steps than the checkpoint has and kill it; the steps then on disk."""
    before = steps_on_disk(work)
    child = start(method, work, out, steps=steps + 5)
    try:
        while steps_on_disk(work) < before + steps:
            assert child.poll() is None, "the child ended by itself"
            time.sleep(0.005)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == -signal.SIGKILL
    return steps_on_disk(work)


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def timeless(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in report.items() if not name.endswith("seconds")} for report in reports]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("method", ["dtr-u", "dtr-t-rl"])
def test_killed_three_times_and_resumed_the_model_is_the_same(method: str, tmp_path: Path) -> None:
    """Two rounds of 20 steps with a checkpoint after each: the first two kills fall into the first, the last beyond."""
    work, out = tmp_path / "work", tmp_path / "found"
    reached = [kill_after(steps, method=method, work=work, out=out) for steps in (1, 7, 20)]
    assert 1 <= reached[0] < reached[1] < 20 < reached[2] < 40, reached
    assert not out.exists()
    last = start(method, work, out)
    last.communicate()
    assert last.returncode == 0
    fit(method, tmp_path / "whole", tmp_path / "expected", steps=0)
    expected, found = load_artefact(tmp_path / "expected"), load_artefact(out)
    assert_same_bytes({**found.weights}, {**expected.weights})
    np.testing.assert_array_equal(found.tree.item_at_leaf, expected.tree.item_at_leaf)
    assert timeless(found.training["rounds"]) == timeless(expected.training["rounds"])
    assert not [path for path in work.glob("**/*") if path.name.endswith(".tmp")], "nothing half-written is left"


@pytest.mark.usefixtures("one_thread")
def test_killed_while_learning_from_features_of_users_and_contexts_the_model_is_the_same(tmp_path: Path) -> None:
    """The encoder takes 20 steps or more; it is killed twice, and another user table has nothing to resume."""
    work, out = tmp_path / "work", tmp_path / "found"
    reached = [kill_after(steps, method=FEATURES, work=work, out=out) for steps in (2, 5)]
    assert 2 <= reached[0] < reached[1] < 20, reached
    with pytest.raises(ArtefactError, match=r"other features of users or contexts\. Give the same user table"):
        fit(FEATURES, work, out, steps=0, cities=("Rome", "Oslo"))
    last = start(FEATURES, work, out)
    last.communicate()
    assert last.returncode == 0
    fit(FEATURES, tmp_path / "whole", tmp_path / "expected", steps=0)
    expected, found = load_artefact(tmp_path / "expected"), load_artefact(out)
    assert {"tower/offset.user.embedding", "tower/offset.context.embedding"} <= set(found.weights)
    assert_same_bytes({**found.weights}, {**expected.weights})
    np.testing.assert_array_equal(found.tree.item_at_leaf, expected.tree.item_at_leaf)


@pytest.mark.usefixtures("one_thread")
def test_killed_while_attention_learns_from_features_the_model_is_the_same(tmp_path: Path) -> None:
    """Two rounds of 10 steps or more, killed twice; another user table has nothing to resume."""
    work, out = tmp_path / "work", tmp_path / "found"
    reached = [kill_after(steps, method=ATTENTION_FEATURES, work=work, out=out) for steps in (2, 5)]
    assert 2 <= reached[0] < reached[1] < 20, reached
    with pytest.raises(ArtefactError, match=r"other features of users or contexts\. Give the same user table"):
        fit(ATTENTION_FEATURES, work, out, steps=0, cities=("Rome", "Oslo"))
    last = start(ATTENTION_FEATURES, work, out)
    last.communicate()
    assert last.returncode == 0
    fit(ATTENTION_FEATURES, tmp_path / "whole", tmp_path / "expected", steps=0)
    expected, found = load_artefact(tmp_path / "expected"), load_artefact(out)
    for name in ("user", "context"):
        assert np.abs(found.weights[f"attention/offset.{name}.embedding"]).max() > 0.0
    assert_same_bytes({**found.weights}, {**expected.weights})
    np.testing.assert_array_equal(found.tree.item_at_leaf, expected.tree.item_at_leaf)
