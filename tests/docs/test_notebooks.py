"""Every notebook runs from its first cell to its last."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from beamtree.data.public import fetch

NOTEBOOKS = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
TITLES = ["Star Wars (1977)", "Alien (1979)", "Blade Runner (1982)"]
USERS, FILMS, LENGTH = 60, 40, 20


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache whose ml-100k is a small log in the files of the original: even users like even films."""
    original = tmp_path_factory.mktemp("original")
    generator = np.random.default_rng(3)
    rows = [
        f"{user}\t{film}\t4\t{1000 * user + step}"
        for user in range(1, USERS + 1)
        for step, film in enumerate(generator.permutation(np.arange(1 + user % 2, FILMS + 1, 2))[:LENGTH])
    ]
    (original / "u.data").write_text("\n".join(rows) + "\n")
    titles = [*TITLES, *(f"Film {number} (1990)" for number in range(len(TITLES) + 1, FILMS + 1))]
    flags = ["0|" * (number % 18) + "1" + "|0" * (18 - number % 18) for number in range(FILMS)]
    lines = [
        f"{number}|{title}|01-Jan-1990||x|{flag}"
        for number, (title, flag) in enumerate(zip(titles, flags, strict=True), 1)
    ]
    (original / "u.item").write_text("\n".join(lines) + "\n", encoding="latin-1")
    folder = tmp_path_factory.mktemp("cache")
    fetch("ml-100k", cache=folder, original=original)
    return folder


@pytest.mark.parametrize("notebook", sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")))
def test_a_notebook_runs(notebook: str, cache: Path, tmp_path: Path) -> None:
    runner = Path(__file__).with_name("run_notebook.py")
    command = [sys.executable, str(runner), str(NOTEBOOKS / f"{notebook}.ipynb")]
    environment = os.environ | {"BEAMTREE_CACHE": str(cache)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("notebook", sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")))
def test_a_notebook_shows_what_came_out_and_no_failure(notebook: str) -> None:
    cells = json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert any(cell["outputs"] for cell in code), "run `make notebooks`"
    assert not [output for cell in code for output in cell["outputs"] if output["output_type"] == "error"]
