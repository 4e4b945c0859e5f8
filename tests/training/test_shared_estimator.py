"""Two live processes that need the same estimator: it is trained once, and neither disturbs the other."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.training.estimate_in_child import store_in

ROOT = Path(__file__).parents[2]
Child = subprocess.Popen[str]


@contextmanager
def child(directory: Path) -> Iterator[Child]:
    """A process that obtains the estimator; killed at the end if it is still there."""
    command = [sys.executable, "-m", "tests.training.estimate_in_child", str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BEAMTREE_THREADS": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: Child) -> str:
    """The next line of a process, once it is there."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def let_on(process: Child, *, epochs: int) -> None:
    assert process.stdin is not None
    process.stdin.write("\n" * epochs)
    process.stdin.flush()


def test_the_second_waits_for_the_first_and_takes_what_it_trained(tmp_path: Path) -> None:
    with child(tmp_path) as first:
        assert says(first) == "epoch 1"
        with child(tmp_path) as second:
            assert says(second) == "waiting"
            let_on(first, epochs=3)
            assert [says(first), says(first)] == ["epoch 2", "epoch 3"]
            outcome, weights = says(first).split()
            assert outcome == "trained"
            assert says(second) == f"found {weights}"
            assert (first.wait(), second.wait()) == (0, 0)
    assert list(tmp_path.iterdir()) == [store_in(tmp_path).finished], "neither the lock nor anything half-done is left"


def test_when_the_first_is_killed_the_second_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    with child(tmp_path / "alone") as whole:
        let_on(whole, epochs=3)
        expected = [says(whole) for _ in range(4)][-1]
    with child(tmp_path / "shared") as first:
        assert says(first) == "epoch 1"
        let_on(first, epochs=1)
        assert says(first) == "epoch 2"
        with child(tmp_path / "shared") as second:
            assert says(second) == "waiting"
            first.kill()
            let_on(second, epochs=3)
            assert says(second) == "epoch 2", "the first epoch was kept"
            assert [says(second), says(second)] == ["epoch 3", expected]
