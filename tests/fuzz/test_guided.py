"""A short coverage-guided run over the model loader, and that it finds what is broken. `make fuzz` is the long run."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.deploy.dockerfile import ROOT

DEV = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]["dev"]
[ATHERIS] = [requirement for requirement in map(Requirement, DEV) if requirement.name == "atheris"]

# Where atheris has a wheel it belongs to the environment of the tests, and its absence is a failure.
pytestmark = pytest.mark.skipif(
    ATHERIS.marker is not None and not ATHERIS.marker.evaluate(), reason="atheris has no wheel for this platform"
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
