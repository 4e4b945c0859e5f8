"""A comparison as a person runs it: fitted in processes, kept, taken up again, reported."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from beamtree.compare import worker
from beamtree.compare.runner import run_tasks
from beamtree.compare.systems import SYSTEMS, choose_systems
from beamtree.compare.task import Task, result_path
from beamtree.config import Config
from beamtree.errors import InputError
from beamtree.training.exclusive import claimed_folder
from tests.cli.beamtree_command import Command, write_sample

QUICK = "popularity,item-to-item,beamtree-instant"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_sample(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def beamtree(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def task(system: str, *, seed: int = 0, log: str = "ratings.csv") -> Task:
    settings = Config.preset("small", data={"min_held_out": 5}).model_dump(mode="json")
    return Task(system, seed, log=log, items=None, settings=settings, budget_seconds=60.0, cutoffs=(5, 20))


def test_a_report_with_all_its_files(beamtree: Command, folder: Path) -> None:
    command = ("compare", "ratings.csv", "--systems", QUICK, "--cutoffs", "5,20", "--out", "out", "--seeds", "2")
    shown = beamtree(*command)
    assert shown.code == 0, shown.err
    assert "| item-to-item |" in shown.out
    files = {path.name for path in (folder / "out").iterdir()}
    assert files >= {"report.html", "report.md", "results.json", "results.parquet", "sweeps.parquet"}
    table = pl.read_parquet(folder / "out" / "results.parquet")
    assert table.height == 6
    assert set(table["system"]) == set(QUICK.split(","))
    assert table["recall@5"].is_between(0, 1).all()
    assert table.filter(system="beamtree-instant")["index_bytes"].min() > 0  # type: ignore[operator]
    assert set(pl.read_parquet(folder / "out" / "sweeps.parquet")["knob"]) == {"beam"}
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_folds_test_every_user_once_and_a_variant_stands_beside_the_default(beamtree: Command, folder: Path) -> None:
    command = ("compare", "ratings.csv", "--systems", "popularity", "--folds", "2", "--out", "out")
    shown = beamtree(*command, "--variant", "narrow:retrieval.beam_width=2", "--variant", "narrow:estimator.epochs=1")
    assert shown.code == 0, shown.err
    assert "40 test users" in shown.out
    assert {row["system"]: row["users"] for row in pl.read_parquet("out/results.parquet").to_dicts()} == {
        "popularity": 40,
        "narrow": 40,
    }
    (narrow, _) = (json.loads(path.read_text()) for path in (folder / "out" / "results").glob("narrow-*.json"))
    assert narrow["changes"]["settings"] == {"retrieval": {"beam_width": 2}, "estimator": {"epochs": 1}}
    assert min(point["effort"] for point in narrow["sweep"]) == 2, "the setting reached the fit"
    assert narrow["findings"]["weighing"]["validation"] > 0.0
    assert "LABEL:section.key=value" in beamtree(*command, "--variant", "estimator.width=8").message


def test_what_is_measured_is_not_measured_again(beamtree: Command, folder: Path) -> None:
    command = ("compare", "ratings.csv", "--systems", "popularity", "--out", "out")
    assert beamtree(*command).code == 0
    kept = (folder / "out" / "results" / "popularity-seed0.json").stat().st_mtime_ns
    assert beamtree(*command).code == 0
    assert (folder / "out" / "results" / "popularity-seed0.json").stat().st_mtime_ns == kept
    assert beamtree(*command, "--set", "data.holdout=last").code == 0
    assert (folder / "out" / "results" / "popularity-seed0.json").stat().st_mtime_ns > kept


def test_a_system_that_fails_does_not_stop_the_others(folder: Path) -> None:
    done = run_tasks([task("popularity", log="nowhere.csv"), task("popularity", seed=1)], folder / "out", jobs=2)
    assert [one.stage for one in done] == ["failed", "measured"]
    assert "nowhere.csv" in (done[0].result or {})["failed"]
    (folder / "nowhere.csv").write_bytes((folder / "ratings.csv").read_bytes())
    [again] = run_tasks([done[0].task], folder / "out", jobs=1)
    assert again.stage == "measured", "the next run tries it again"


def test_a_process_that_is_killed_is_told_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamtree.compare.runner.MODULE", "antigravity.nothing")
    [done] = run_tasks([task("popularity")], folder / "out", jobs=1)
    assert done.stage == "failed"
    assert "antigravity" in (done.result or {})["failed"]


def test_a_missing_library_is_told_with_the_remedy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamtree.baselines.registry.find_spec", lambda _: None)
    (folder / "task.json").write_text(task("ease").text())
    assert worker.main([str(folder / "task.json"), str(folder / "out")]) == 0
    result = json.loads(result_path(folder / "out", task("ease")).read_text())
    assert "pip install 'beamtree[baselines]'" in result["left_out"]


def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(folder: Path) -> None:
    names = "popularity,ease,ials,sasrec,beamtree"
    command = [sys.executable, "-m", "beamtree", "compare", "ratings.csv", "--systems", names, "--out", "out"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = folder / "out" / "results" / "popularity-seed0.json"
    while not first.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "the same command goes on" in " ".join(said.split())
    kept = first.stat().st_mtime_ns
    subprocess.run([*command[:-4], "--systems", "popularity", "--out", "out"], cwd=folder, check=True)
    assert first.stat().st_mtime_ns == kept


def test_the_list_names_every_system(beamtree: Command) -> None:
    listed = json.loads(beamtree("compare", "--list", "--json").out)
    assert [one["name"] for one in listed] == list(SYSTEMS)
    assert all(one["description"] and one["family"] for one in listed)
    assert "item-to-item" in beamtree("compare", "--list").out


def test_what_is_wrong_is_said(beamtree: Command, folder: Path) -> None:
    assert "Give the log" in beamtree("compare").message
    quick = ("compare", "ratings.csv", "--systems", "popularity")
    assert "Could not write to" in beamtree(*quick, "--out", "ratings.csv/x").message
    with claimed_folder(folder / "out", otherwise="wait"):
        refused = beamtree(*quick, "--out", "out")
    assert refused.code == 1
    assert "give another --out" in refused.message
    with pytest.raises(InputError, match="'nobody'"):
        choose_systems("popularity,nobody")
