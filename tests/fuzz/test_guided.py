"""The driver of coverage-guided fuzzing. `make fuzz` has atheris; other environments may not."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is not installed: make fuzz runs this"
)

BROKEN_LOADER = """
from tests.fuzz import guided

def fail(directory):
    raise KeyError("raw")

guided.check_recommends = guided.check_serves = fail
guided.main()
"""


def fuzz(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)


def test_coverage_is_reported_and_what_reached_more_begins_the_next_run(tmp_path: Path) -> None:
    first = fuzz("-m", "tests.fuzz.guided", "--runs", "400", "--folder", str(tmp_path))
    assert first.returncode == 0, first.stderr
    [reached] = re.findall(r"DONE\s+cov: (\d+) ft: \d+", first.stderr)
    seeds = {path for path in (tmp_path / "corpus").iterdir() if path.name.startswith("seed-")}
    assert int(reached) > 300
    assert set((tmp_path / "corpus").iterdir()) > seeds
    assert not list((tmp_path / "findings").iterdir())
    for seed in seeds:
        seed.unlink()
    again = fuzz("-m", "tests.fuzz.guided", "--runs", "1", "--folder", str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert not any(path.name.startswith("seed-") for path in (tmp_path / "corpus").iterdir())


def test_a_raw_exception_is_a_finding_that_can_be_run_again(tmp_path: Path) -> None:
    found = fuzz("-c", BROKEN_LOADER, "--runs", "100", "--folder", str(tmp_path))
    assert found.returncode != 0
    [finding] = (tmp_path / "findings").glob("crash-*")
    assert "KeyError: 'raw'" in found.stdout + found.stderr
    again = fuzz("-c", BROKEN_LOADER, "--folder", str(tmp_path), str(finding))
    assert "KeyError: 'raw'" in again.stdout + again.stderr
    mended = fuzz("-m", "tests.fuzz.guided", "--folder", str(tmp_path), str(finding))
    assert mended.returncode == 0, mended.stderr
