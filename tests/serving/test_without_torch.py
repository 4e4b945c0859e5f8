"""Serving needs neither torch nor scikit-learn."""

import subprocess
import sys
from pathlib import Path

from tests.serving.server import REPOSITORY

SCRIPT = """
import builtins, sys
real_import = builtins.__import__
def refuse(name, *rest, **named):
    if name.partition(".")[0] in ("torch", "sklearn", "scipy"):
        raise ModuleNotFoundError(name)
    return real_import(name, *rest, **named)
builtins.__import__ = refuse
from pathlib import Path
from tests.serving.models import save_model
save_model(Path(sys.argv[1]), 60)
import beamtree.cli.serve
import beamtree.serving.run
from beamtree.serving.answers import answer_calls
from beamtree.serving.loaded_model import load_model
from beamtree.serving.schemas.recommend_body import Recommend
[[answer], [explained]] = answer_calls(
    load_model(Path(sys.argv[1])),
    [[Recommend(history=[100, 101], k=3)], [Recommend(history=[100, 101], k=3, explain=True)]],
    histories=None,
)
print(answer["source"], len(answer["items"]), len(explained["items"]))
"""


def test_a_model_is_loaded_and_asked_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "model")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "beam 3 3\n"
