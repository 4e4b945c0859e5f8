"""beamtree inspect with a log: a report is written, or it says what is wrong."""

import json
from pathlib import Path

import pytest

from tests.cli.beamtree_command import Command

ATTENTION = ("--set", 'model.parts=["attention", "memory"]')
FIT = ("fit", "ratings.csv", "--items", "items.csv", "--config", "tiny.toml", *ATTENTION, "--out", "model")
INSPECT = ("inspect", "model", "--log", "ratings.csv")


def test_a_report_and_its_numbers_are_written(beamtree: Command, folder: Path) -> None:
    assert beamtree(*FIT).code == 0
    shown = beamtree(*INSPECT, "--out", "look.html", "--max-users", "3", "--held-out", "test")
    assert shown.code == 0, shown.err
    assert "3 test users" in shown.out
    assert "best baseline" in shown.out
    assert "of the exact top 20" in shown.out
    assert "Wrote look.html and look.json" in shown.message
    page = (folder / "look.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    numbers = json.loads((folder / "look.json").read_text(encoding="utf-8"))
    assert (numbers["subject"]["users"], numbers["subject"]["group"]) == (3, "test")
    assert numbers["labels"]["estimator"] == "popularity"
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(("look", ".look"))) == [
        "look.html",
        "look.json",
    ]

    printed = json.loads(
        beamtree(*INSPECT, "--out", "look.html", "--max-users", "3", "--held-out", "test", "--json").out
    )
    assert printed | {"latency": None} == numbers | {"latency": None}, "only times differ between runs"
    assert [result["width"] for result in printed["latency"]["results"]] == [
        result["width"] for result in numbers["latency"]["results"]
    ]


@pytest.mark.usefixtures("folder")
def test_a_model_of_tower_and_memory_is_looked_into(beamtree: Command) -> None:
    small = ("estimator.epochs=1", "estimator.width=4", "estimator.recipe.layers=1", 'model.parts=["tower", "memory"]')
    fit = ("fit", "ratings.csv", "--items", "items.csv", "--config", "tiny.toml", "--out", "model")
    assert beamtree(*fit, *(part for setting in small for part in ("--set", setting))).code == 0
    assert "memory + tower" in beamtree("inspect", "model").out
    shown = beamtree(*INSPECT, "--held-out", "test")
    assert shown.code == 0, shown.err
    assert "hit rate@20" in shown.out
    numbers = json.loads(beamtree(*INSPECT, "--held-out", "test", "--json").out)
    assert numbers["parts"]["parts"] == ["memory", "tower"]
    assert numbers["labels"] is None
    page = Path("report.html").read_text(encoding="utf-8")
    assert "Contribution of each part" in page
    assert "Rectified labels" not in page
    assert "leave it out" in beamtree(*INSPECT, "--estimator", "encoder").message


@pytest.mark.usefixtures("folder")
def test_a_model_that_only_counts_has_a_report_too(beamtree: Command) -> None:
    beamtree(*FIT[:-1], "counted", "--set", 'model.parts=["memory"]')
    shown = beamtree("inspect", "counted", "--log", "ratings.csv")
    assert shown.code == 0, shown.err
    page = Path("report.html").read_text(encoding="utf-8")
    assert "Accuracy beside simple baselines" in page
    assert "Title" in page, "example lists have titles"
    assert "Theory" not in page


@pytest.mark.usefixtures("folder")
def test_the_estimator_is_trained_when_asked_for_and_kept(beamtree: Command) -> None:
    beamtree(*FIT, "--set", "estimator.epochs=1", "--set", "estimator.width=4", "--set", "estimator.recipe.layers=1")
    trained = beamtree(*INSPECT, "--estimator", "encoder", "--json")
    assert trained.code == 0, trained.err
    assert "Learning the estimator" in trained.message
    again = beamtree(*INSPECT, "--json")
    assert "Learning the estimator" not in again.message
    assert json.loads(again.out)["labels"] == json.loads(trained.out)["labels"]
    assert json.loads(again.out)["labels"]["estimator"] == "encoder"
    asked = json.loads(beamtree(*INSPECT, "--estimator", "popularity", "--json").out)
    assert asked["labels"]["estimator"] == "popularity"


@pytest.mark.usefixtures("folder")
def test_the_estimator_of_a_fit_is_found_again(beamtree: Command) -> None:
    small = ("--set", "estimator.epochs=1", "--set", "estimator.width=4", "--set", "estimator.recipe.layers=1")
    assert "Learning the estimator" in beamtree(*FIT, "--method", "dtr-t-rl", *small).message
    looked = beamtree(*INSPECT, "--json")
    assert json.loads(looked.out)["labels"]["estimator"] == "encoder"
    assert "Learning the estimator" not in looked.message
    elsewhere = json.loads(beamtree(*INSPECT, "--estimator-cache", "elsewhere", "--json").out)
    assert elsewhere["labels"]["estimator"] == "popularity"
    assert "estimator: reused, " in beamtree(*FIT, "--method", "dtr-t-rl", *small, "--rounds", "2").message


@pytest.mark.usefixtures("folder")
def test_what_is_wrong_is_said(beamtree: Command) -> None:
    beamtree(*FIT)
    assert "add --log" in beamtree("inspect", "model", "--max-users", "5").message
    assert ".html" in beamtree(*INSPECT, "--out", "look.json").message
    assert "ratings.csv is a file" in beamtree(*INSPECT, "--out", "ratings.csv/look.html").message
    assert "leave out --column" in beamtree("inspect", "model", "--column", "user_id=uid").message
    Path("folder.html").mkdir()
    assert "is a folder" in beamtree(*INSPECT, "--out", "folder.html").message
    assert "no-such.csv" in beamtree("inspect", "model", "--log", "no-such.csv").message

    Path("other.csv").write_text(Path("ratings.csv").read_text().replace(",i2", ",x2"), encoding="utf-8")
    other = beamtree("inspect", "model", "--log", "other.csv")
    assert other.code == 1
    assert "This log does not match the model: of its 24 items the model knows" in other.message
    assert not Path("report.html").exists()

    beamtree(*FIT[:-1], "everything", "--holdout", "none")
    nobody = beamtree("inspect", "everything", "--log", "ratings.csv")
    assert nobody.code == 1
    assert "nothing held out" in nobody.message
    assert "Traceback" not in nobody.err
