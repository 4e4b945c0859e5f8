"""Experiments outside the product: the same command, runner and report."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from beamtree.compare import worker
from beamtree.compare.curve import read_curves
from beamtree.compare.report import About
from beamtree.compare.reproduce.catalogue import OUTSIDE
from beamtree.compare.reproduce.experiment import Evidence
from beamtree.compare.reproduce.write import write_experiment
from beamtree.compare.summary import summarise
from beamtree.compare.task import Task, read_result
from beamtree.config import MAX_EPOCHS, Config
from research.experiments import EXPERIMENTS, perturbation_part
from research.perturbation import THRESHOLDS
from research.reproduce import app
from research.systems import SYSTEMS
from tests.cli.beamtree_command import write_sample


def test_what_the_product_lists_is_here() -> None:
    assert set(EXPERIMENTS) == set(OUTSIDE)
    for experiment in EXPERIMENTS.values():
        for variant in experiment.variants:
            made: Any = SYSTEMS[variant.system].changed(variant.changes).entry.make()
            assert all(getattr(made, name) == value for name, value in variant.changes.items())
    alphas = [variant.at for variant in EXPERIMENTS["adaptive"].variants]
    assert alphas == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_variant_is_fitted_by_the_products_worker(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sample(tmp_path)
    monkeypatch.chdir(tmp_path)
    training = {"max_instances": 100, "epochs": MAX_EPOCHS}
    settings = Config.preset("small", data={"min_held_out": 5}, training=training).model_dump(mode="json")
    experiment = EXPERIMENTS[name]
    variant = experiment.variants[-1]
    task = Task(
        variant.system,
        0,
        "ratings.csv",
        None,
        settings,
        budget_seconds=None,
        cutoffs=(20,),
        label=variant.label if variant.changes else None,
        changes={**variant.changes},
        systems_module=experiment.systems_module,
    )
    Path("task.json").write_text(task.text())
    assert worker.main(["task.json", "out"]) == 0
    result = read_result(Path("out"), task)
    assert result is not None
    assert result["metrics"]["f@20"] >= 0.0, result
    evidence = Evidence([variant], summarise([result]), read_curves(Path("out")), with_paper=True)
    about = About("ratings", 1.0, 1, command="again")
    text = write_experiment(experiment, evidence, [result], about, directory=Path("out"))
    shown = {
        "adaptive": "| 1 | ",
        "draws": "mode training",
        "labels": "soft",
        "placement": "auction, rows rebuild",
        "bound": "| size of the weights | ",
        "perturbation": "| 1e-02 | ",
    }
    assert shown[name] in text
    assert Path("out", f"{name}.html").is_file()
    if name == "perturbation":
        assert len(result["findings"]["changed"]) == len(THRESHOLDS)
        assert "paper, MIND" in text
    if name == "bound":
        found = result["findings"]
        assert found["total"] > found["empirical_loss"] > 0.0
        assert found["constants"]["label_discrepancy"] is not None, "labels are rectified"
        assert found["constants"]["largest_score"] > 0.0
        assert len(found["norms"]["layers"]) == 4
    folders = [folder.name for folder in Path("out", "work", "seed0").iterdir()]
    assert any(folder.startswith("dtr-t" if name == "perturbation" else variant.system) for folder in folders)


def test_the_command_knows_its_experiments_and_points_elsewhere() -> None:
    runner = CliRunner()
    assert "Give the log" in str(runner.invoke(app, ["adaptive"]).exception)
    elsewhere = str(runner.invoke(app, ["results", "--data", "log.csv"]).exception)
    assert "beamtree reproduce results --data LOG" in elsewhere


def test_shares_are_means_over_seeds() -> None:
    def result(seed: int, share: float) -> dict[str, Any]:
        return {
            "system": "dtr-t-perturbed",
            "family": "tree",
            "seed": seed,
            "metrics": {"f@20": 0.1},
            "per_user": {"f@20": [0.1]},
            "findings": {"changed": [share] * len(THRESHOLDS)},
        }

    variants = EXPERIMENTS["perturbation"].variants
    found = Evidence(variants, summarise([result(0, 0.1), result(1, 0.3)]), [], with_paper=True)
    (table,) = perturbation_part(found).tables
    assert table.header == ("threshold", "here", "paper, Movie", "paper, MIND", "paper, Amazon", "paper, Tmall")
    assert table.rows[-1] == ("1e-02", "0.2000", "0.0784", "0.1766", "0.0511", "0.0925")
    (empty,) = perturbation_part(Evidence(variants, summarise([]), [], with_paper=True)).tables
    assert not empty.rows
