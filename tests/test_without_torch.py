"""Where torch is not installed, everything but fitting works, and fitting says what to do."""

import subprocess
import sys
from pathlib import Path

from tests.cli.beamtree_command import write_sample

HIDE_TORCH = """
import sys
sys.modules["torch"] = None
from beamtree.cli.main import run
run()
"""


def test_fitting_names_the_missing_package(tmp_path: Path) -> None:
    write_sample(tmp_path)
    command = [sys.executable, "-c", HIDE_TORCH, "fit", "ratings.csv", "--config", "tiny.toml"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "pip install 'beamtree[train]'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_other_commands_work(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HIDE_TORCH, "settings"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
