"""beamtree export as people type it, and the example that needs no beamtree."""

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import load_artefact, save_artefact
from tests.cli.beamtree_command import Command
from tests.export.exported import random_artefact, run
from tests.small import model_settings, random_tree

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "onnx_search.py"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a saved model of 30 items, i7 to i36."""
    artefact = random_artefact(model_settings(), random_tree(30, branching=2, seed=0), seed=0, text_ids=True)
    save_artefact(tmp_path / "model", artefact)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def beamtree(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_onnx(beamtree: Command, folder: Path) -> None:
    outcome = beamtree("export", "onnx", "model", "out/model.onnx", "-k", "3", "--beam", "9")
    assert outcome.code == 0, outcome.err
    assert "Wrote out/model.onnx" in outcome.message
    outputs = run(folder / "out" / "model.onnx", np.array([[1, 2]]))
    assert outputs["items"].shape == (1, 3)
    assert beamtree("export", "onnx", "model", "out/model.onnx", "--no-raw-ids").code == 0
    assert "ids" not in run(folder / "out" / "model.onnx", np.array([[1, 2]]))


def test_vectors(beamtree: Command, folder: Path) -> None:
    outcome = beamtree("export", "vectors", "model", "vectors")
    assert outcome.code == 0, outcome.err
    assert len(pl.read_parquet(folder / "vectors" / "items.parquet")) == 30
    assert outcome.message.count("Wrote") == len(list((folder / "vectors").iterdir()))


def test_a_damaged_model_is_refused_in_one_sentence(beamtree: Command, folder: Path) -> None:
    artefact = load_artefact(folder / "model")
    lacking = {name: array for name, array in artefact.weights.items() if name != "attention/mlp.0.weight"}
    save_artefact(folder / "model", replace(artefact, weights=lacking))
    for command in (("onnx", "model", "out.onnx"), ("vectors", "model", "vectors")):
        refused = beamtree("export", *command)
        assert refused.code == 1
        assert "model does not fit together: Expected the array mlp.0.weight of shape" in refused.message


@pytest.mark.usefixtures("folder")
def test_without_the_package_it_says_what_to_install(beamtree: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamtree.cli.export.find_spec", lambda _: None)
    refused = beamtree("export", "onnx", "model", "model.onnx")
    assert refused.code == 1
    assert "beamtree[onnx]" in refused.message
    assert not Path("model.onnx").exists()


def test_the_example_runs_without_beamtree(beamtree: Command, folder: Path) -> None:
    assert beamtree("export", "onnx", "model", "model.onnx", "-k", "4").code == 0
    forbid = "import runpy, sys; sys.modules['beamtree'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
    command = [sys.executable, "-c", forbid, str(EXAMPLE), "model.onnx", "3", "9", "4"]
    answer = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    expected = run(folder / "model.onnx", np.array([[3, 9, 4]]))["ids"][0]
    assert [line.split()[1] for line in answer.splitlines()] == expected.tolist()


def test_the_example_is_short_and_imports_two_packages() -> None:
    source = EXAMPLE.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 20
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert all(isinstance(node, ast.Import) for node in imports)
    imported = {alias.name for node in imports for alias in node.names}
    assert imported - set(sys.stdlib_module_names) == {"numpy", "onnxruntime"}
