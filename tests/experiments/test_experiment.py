"""Settings files: what they inherit, what a study makes of them, and how a wrong one is refused."""

from pathlib import Path

import numpy as np
import pytest

from beamtree.errors import SettingsError
from beamtree.tree.build import plant
from experiments.experiment import Experiment, read_experiments

SETTINGS = Path(__file__).resolve().parents[2] / "experiments" / "settings"
SHARED = {
    "best-amazon-8cat.toml",
    "best-ml-1m.toml",
    "faithful-ml-1m.toml",
    "small-ml-1m.toml",
    "faithful-amazon-8cat.toml",
    "sensitivity.toml",
}


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
    return folder / f"{list(files)[-1]}.toml"


BASE = """
role = "trial"
system = "dtr-u"
[data]
name = "x"
log = "x.csv"
[config.training]
epochs = 2
negatives = 9
"""
STUDY = """
[study]
name = "n"
systems = ["dtr-u", "dtr-t"]
points = [{value = 4, training.negatives = 4}, {value = 8, training.negatives = 8}]
"""


def test_a_file_overrides_what_it_extends(tmp_path: Path) -> None:
    file = write(tmp_path, base=BASE, own='extends = "base.toml"\nsystem = "dtr-t"\n[config.training]\nepochs = 5\n')
    [experiment] = read_experiments(file)
    training = experiment.config(7).training
    assert (training.method, training.epochs, training.negatives, training.seed) == ("dtr-t", 5, 9, 7)
    assert (experiment.file, experiment.role, experiment.data.name) == ("own.toml", "trial", "x")


def test_a_study_makes_one_run_for_each_system_and_point(tmp_path: Path) -> None:
    runs = read_experiments(write(tmp_path, study=BASE + STUDY))
    found = [(run.system, run.point and run.point.value, run.config(0).training.negatives) for run in runs]
    assert found == [("dtr-u", 4, 4), ("dtr-u", 8, 8), ("dtr-t", 4, 4), ("dtr-t", 8, 8)]
    assert all(run.config(0).training.epochs == 2 for run in runs)
    assert len({run.name(0) for run in runs}) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BASE.replace("dtr-u", "dtr-x"), "system is one of dtr-u, .*; got 'dtr-x'"),
        (BASE.replace("trial", "final"), "role is one of"),
        (BASE.replace("role", "roles"), "roles is unknown"),
        (BASE.replace('[data]\nname = "x"', "[data]"), "needs a name and a log"),
        (BASE.replace("negatives", "negative"), "did you mean training.negatives"),
        (BASE.replace("trial", "best") + '[study]\nname = "n"\npoints = [{value = 1}]\n', "a study is made of trials"),
        (BASE + '[study]\nname = "n"\npoints = [{training.negatives = 1}]\n', "points of the form"),
        ('extends = "own.toml"\n', "extends itself"),
        ("role = ", "is not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_experiments(write(tmp_path, own=text))


def committed() -> list[Experiment]:
    files = sorted(file for file in SETTINGS.glob("*.toml") if file.name not in SHARED)
    return [experiment for file in files for experiment in read_experiments(file)]


def test_every_settings_file_can_be_read() -> None:
    assert len(committed()) >= 50


def test_faithful_methods_differ_by_their_method_alone() -> None:
    """But for SASRec, which is tuned as an opponent of its own."""
    for data in ("ml-1m", "amazon-8cat"):
        runs = [run for run in committed() if run.role == "faithful" and run.data.name == data]
        assert {run.system for run in runs} == {"dtr-u", "dtr-t", "dtr-t-rl", "sasrec", "popularity"}
        settings = [run.config(0).model_dump() for run in runs]
        for run, config in zip(runs, settings, strict=True):
            del config["training"]["method"], config["estimator"]["seed"]
            if run.system == "sasrec":
                config["estimator"] = settings[0]["estimator"]
        assert all(config == settings[0] for config in settings)
        assert settings[0]["data"]["protocol"] == "paper"


def test_every_branching_draws_as_many_negatives_in_total() -> None:
    """On 3,706 items, the catalogue of ml-1m; a level of fewer nodes gives all but the positive."""
    totals = {}
    for run in read_experiments(SETTINGS / "sensitivity-branching.toml"):
        config = run.config(0)
        tree = plant(np.arange(3706, dtype=np.int32), branching=config.tree.branching)
        totals[config.tree.branching] = np.minimum(tree.level_sizes[1:] - 1, config.training.negatives).sum()
    assert set(totals) == {2, 4, 6, 8, 10}
    assert max(totals.values()) - min(totals.values()) <= 2
