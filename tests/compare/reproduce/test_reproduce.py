"""An experiment of the paper as a person runs it: its fits, its curves, its report, and what a crash leaves."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from beamtree.compare import worker
from beamtree.compare.curve import curve_path, read_curves
from beamtree.compare.reproduce.catalogue import EXPERIMENTS, OUTSIDE
from beamtree.compare.systems import SYSTEMS
from beamtree.compare.task import Task, read_result
from beamtree.config import MAX_EPOCHS, Config
from tests.cli.beamtree_command import Command, write_sample

SMALL = ("--set", "data.protocol=clean", "--set", "data.min_held_out=5", "--instances", "300", "--out", "out")


KILLED_AT_ITS_SECOND_POINT = """
import os, signal, sys
from beamtree.compare import curve, worker

class Mortal(curve.CurveFile):
    def record(self, point):
        if len(self._lines) > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        super().record(point)

worker.CurveFile = Mortal
worker.main(sys.argv[1:])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_sample(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def beamtree(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def small_task(*, instances: int) -> Task:
    """Rounds of ten steps."""
    training = {"max_instances": instances, "epochs": MAX_EPOCHS, "schedule": {"checkpoint_minutes": 0.0}}
    settings = Config.preset("small", data={"min_held_out": 5}, training=training).model_dump(mode="json")
    changes = {"min_round_steps": 10, "batch_size": 20, "learning_rates": [0.01], "embedding_dim": 4}
    return Task(
        "dtr-u", 0, "ratings.csv", None, settings, budget_seconds=None, cutoffs=(20,), label="small", changes=changes
    )


def points(folder: Path) -> list[dict[str, Any]]:
    (curve,) = read_curves(folder)
    return [{name: value for name, value in one.items() if name != "seconds"} for one in (*curve.points, *curve.rounds)]


def test_an_experiment_with_its_curves_and_report(beamtree: Command, folder: Path) -> None:
    command = ("reproduce", "tree-updating", "--data", "ratings.csv", "--systems", "dtr-u", *SMALL)
    shown = beamtree(*command, "--paper")
    assert shown.code == 0, shown.err
    assert "## F@20 over rounds" in shown.out
    assert "| DTR(U) |" in shown.out
    assert "compare ratios, not figures" in shown.out
    (result,) = (json.loads(path.read_text()) for path in (folder / "out" / "results").iterdir())
    assert (result["label"], result["changes"]["min_round_steps"]) == ("dtr-u, all rounds", 1)
    assert 0 < result["instances"] <= 300
    assert result["settings"]["data"]["min_interactions"] == 15, "as published"
    (curve,) = read_curves(folder / "out")
    assert len(curve.rounds) >= 2
    assert curve.rounds[-1]["instances"] == result["instances"]
    page = (folder / "out" / "tree-updating.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == 2, "over rounds and over instances"
    kept = json.loads((folder / "out" / "tree-updating.json").read_text())
    assert kept["experiment"]["paper"] == "Figure 3"
    assert "per_user" not in kept["results"][0]
    before = (folder / "out" / "results").stat().st_mtime_ns
    assert beamtree(*command).code == 0
    assert (folder / "out" / "results").stat().st_mtime_ns == before, "measured once"


def test_a_fit_that_is_killed_goes_on_and_draws_the_same_curve(folder: Path) -> None:
    task = small_task(instances=1000)
    (folder / "task.json").write_text(task.text())
    died = subprocess.run(
        [sys.executable, "-c", KILLED_AT_ITS_SECOND_POINT, "task.json", "killed"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    assert curve_path(folder / "killed", task).exists()
    assert read_result(folder / "killed", task) is None, "killed before its end"
    for out in ("killed", "whole"):
        assert worker.main(["task.json", out]) == 0
    assert points(folder / "killed") == points(folder / "whole")
    killed, whole = (read_result(folder / out, task) for out in ("killed", "whole"))
    assert killed is not None
    assert whole is not None
    assert killed["metrics"] == whole["metrics"]
    assert (killed["starts"], whole["starts"]) == (2, 1)


def test_ctrl_c_leaves_a_report_of_what_there_is(folder: Path) -> None:
    options = ["reproduce", "tree-updating", "--data", "ratings.csv", "--systems", "dtr-u,jtm", *SMALL]
    command = [sys.executable, "-m", "beamtree", *options, "--instances", "60000"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list((folder / "out").glob("curves/*.jsonl")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "the same command goes on" in " ".join(said.split())
    assert "## F@20 over instances" in (folder / "out" / "tree-updating.md").read_text()


def test_the_list_names_all_experiments(beamtree: Command) -> None:
    listed = json.loads(beamtree("reproduce", "--list", "--json").out)
    names = "results sequential inference-time training-time memory tree-updating negatives branching dimension"
    outside = "adaptive draws labels placement bound perturbation"
    assert {one["name"] for one in listed} == {*names.split(), *outside.split()}
    assert all(re.match("Table|Figure|Equation|Theorem", one["paper"]) for one in listed)
    assert {one["command"] for one in listed} >= {"beamtree reproduce results", "python -m research.reproduce adaptive"}
    assert "tree-updating" in beamtree("reproduce").out


@pytest.mark.usefixtures("folder")
def test_what_is_wrong_is_said(beamtree: Command) -> None:
    assert "--data LOG" in beamtree("reproduce", "results").message
    assert "'resluts'" in beamtree("reproduce", "resluts", "--data", "ratings.csv").message
    elsewhere = beamtree("reproduce", "adaptive", "--data", "ratings.csv")
    assert (elsewhere.code, "python -m research.reproduce adaptive" in elsewhere.message) == (1, True)
    unknown = beamtree("reproduce", "memory", "--data", "ratings.csv", "--systems", "popularity")
    assert "memory has no 'popularity'" in unknown.message


def test_a_log_that_leaves_nobody_to_test_on_says_the_remedy(folder: Path) -> None:
    """Histories of the sample are shorter than the paper's protocol asks for."""
    settings = Config.load(assignments=["data.protocol=paper", "data.min_held_out=5"]).model_dump(mode="json")
    task = Task("popularity", 0, "ratings.csv", None, settings, budget_seconds=60.0, cutoffs=(20,))
    (folder / "task.json").write_text(task.text())
    assert worker.main(["task.json", "out"]) == 0
    result = read_result(folder / "out", task)
    assert result is not None
    assert "--set data.protocol=clean" in result["failed"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_variant_can_be_made(name: str) -> None:
    variants = EXPERIMENTS[name].variants
    assert len({variant.label for variant in variants}) == len(variants)
    for variant in variants:
        made: Any = SYSTEMS[variant.system].changed(variant.changes).entry.make()
        assert made.name == variant.system
        for field, value in variant.changes.items():
            found = getattr(made.recipe, field, None) or getattr(made.recipe.sizes, field)
            assert found == value


def test_sweeps_are_the_papers() -> None:
    places = {
        name: sorted({variant.at for variant in EXPERIMENTS[name].variants if variant.at is not None})
        for name in ("negatives", "branching", "dimension")
    }
    assert places == {
        "negatives": [10, 20, 30, 40, 50, 60, 70, 80, 90],
        "branching": [2, 4, 6, 8, 10],
        "dimension": [12, 16, 20, 24, 28, 32],
    }
    assert set(OUTSIDE) == {"adaptive", "draws", "labels", "placement", "bound", "perturbation"}
