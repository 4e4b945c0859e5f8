"""Studies as a person runs them: measured once by the runner of `beamtree compare`, kept as lines, shown as tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from beamtree.compare import worker
from beamtree.compare.plan import plan_tasks
from beamtree.compare.runner import Progress
from beamtree.compare.systems import choose_systems
from beamtree.compare.task import Task, read_result
from beamtree.config import Config
from beamtree.config.loading import read_toml
from beamtree.errors import InputError
from beamtree.training.events import ESTIMATOR
from benchmarks.accuracy import measured_accuracy
from experiments.baselines import MODEL, SCAN, seconds_of, tables
from experiments.features import with_year
from experiments.lines import read_lines
from experiments.study import DEFAULTS, SETTINGS, main
from tests.small import two_group_log

TINY = ["estimator.width=8", "estimator.epochs=2", "data.min_interactions=2", "data.min_held_out=2"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log whose items are told apart by their genre, beside a table of them; 40 users end with an own item."""
    (tmp_path / "groups").mkdir()
    log = two_group_log(users_per_group=30, items_per_group=20).frame
    own = log.group_by("user_id", maintain_order=True).agg(pl.col("item_id").first().str.head(1), timestamp=99).head(40)
    unmet = own.with_columns(item_id=pl.col("item_id") + "new" + pl.int_range(pl.len()).cast(pl.String))
    log = pl.concat([log, unmet.cast(log.schema)]).sort("user_id", "timestamp")
    log.write_parquet(tmp_path / "groups" / "interactions.parquet")
    items = log.select("item_id", genres=pl.col("item_id").str.head(1) + "|film").unique(maintain_order=True)
    items.with_columns(title=items["item_id"] + " (1995)").write_parquet(tmp_path / "groups" / "items.parquet")
    monkeypatch.setenv("BEAMTREE_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are run by the worker itself, without a process for each."""

    def run_shown(tasks: Sequence[Task], out: Path, **_: int) -> list[Progress]:
        for task in tasks:
            (out / "task.json").write_text(task.text())
            assert worker.main([str(out / "task.json"), str(out)]) == 0
        return [Progress(task, result=read_result(out, task)) for task in tasks]

    monkeypatch.setattr("experiments.study.run_shown", run_shown)


def measured(folder: Path, study: str, *options: str) -> list[dict[str, Any]]:
    settings = [part for assignment in TINY for part in ("--set", assignment)]
    where = ["--folder", str(folder / "kept"), "--out", str(folder / "lines.jsonl")]
    assert main([study, "groups", *where, *settings, *options]) == 0
    return read_lines(folder / "lines.jsonl")


def test_a_line_has_every_system_and_is_measured_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--systems", "popularity,gru4rec")
    (line,) = measured(folder, "baselines", *options, "--set", "model.history_length=7")
    assert list(line["metrics"]) == [MODEL, SCAN, "popularity", "gru4rec"]
    assert line["users"] == 6
    own, other = (line["metrics"][name]["f@20"] for name in (MODEL, "popularity"))
    ratio, low, high = line["ratios"]["popularity"]["f@20"]
    assert ratio == pytest.approx(own / other, abs=2e-3)
    assert low <= ratio <= high
    assert line["ratios"][SCAN]["f@20"][0] == pytest.approx(1.0, abs=0.05)
    assert line["weighing"][0]["validation"] > 0.0
    assert line["settings"]["model"]["history_length"] == 7
    assert set(line["seconds"]) == {MODEL, "popularity", "gru4rec"}
    shown = capsys.readouterr().out
    assert f"| groups | {MODEL} | 1 | 6 | {own:.4f} |" in shown
    assert f"{ratio:.3f} [{low:.3f}, {high:.3f}]" in shown
    assert measured(folder, "baselines", *options) == [line]
    assert "groups is measured already" in capsys.readouterr().out


def test_over_folds_every_user_is_tested_once_and_a_variant_has_a_name(folder: Path) -> None:
    parts = ("--name", "memory alone", "--set", 'model.parts=["memory"]')
    (line,) = measured(folder, "baselines", "--systems", "popularity", "--folds", "2", *parts)
    assert (line["users"], line["folds"], line["name"]) == (60, 2, "memory alone")
    assert line["settings"]["model"]["parts"] == ["memory"]
    assert line["weighing"][0]["memory"], "of the fits"
    assert "tower" not in line["weighing"][0]


def test_rare_and_cold_labels_are_measured_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = measured(folder, "features")
    assert [text.partition(" ")[0] for text in line["features"]] == ["category", "genres", "year"]
    assert line["users"]["all"] == 6
    assert 1 <= line["users"]["cold"] <= 6
    assert set(line["metrics"]["with"]) == set(line["metrics"]["without"]) == set(line["users"])
    without, featured = line["metrics"]["without"]["all"], line["metrics"]["with"]["all"]
    ratio, low, high = line["ratios"]["all"]["ndcg@20"]
    assert ratio == pytest.approx(featured["ndcg@20"] / without["ndcg@20"], abs=2e-3)
    assert low <= ratio <= high
    assert line["settings"]["estimator"]["item_features"] is False
    shown = capsys.readouterr().out
    assert "| all items | 1 | 6 |" in shown
    assert f"| no training interaction | 1 | {line['users']['cold']} |" in shown


def test_the_time_of_an_encoder_counts_for_each_fit_that_uses_it() -> None:
    fit = {"fit_seconds": 2.0, "findings": {"estimator_seconds": 30.0}}
    assert seconds_of({**fit, "step_seconds": {}}) == 32.0, "trained by another fit"
    assert seconds_of({**fit, "step_seconds": {ESTIMATOR: 0.1}}) == 2.0, "among its own"
    assert seconds_of({"fit_seconds": 2.0, "step_seconds": {}}) == 2.0


def test_an_item_table_without_features_is_refused(folder: Path) -> None:
    plain = folder / "plain.parquet"
    pl.read_parquet(folder / "groups" / "items.parquet").select("item_id").write_parquet(plain)
    with pytest.raises(InputError, match="no column that can be a feature"):
        measured(folder, "features", "--items", str(plain))
    assert not (folder / "lines.jsonl").exists()


def test_a_fit_that_fails_is_told_and_leaves_no_line(folder: Path) -> None:
    (folder / "groups" / "interactions.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"popularity: .*interactions\.parquet"):
        measured(folder, "baselines", "--systems", "popularity")
    assert not (folder / "lines.jsonl").exists()


def test_years_are_read_from_titles_that_end_in_them() -> None:
    titles = pl.DataFrame({"item_id": [1, 2, 3], "title": ["Heat (1995)", "2001 (1968) ", "Untitled"]})
    assert with_year(titles)["year"].to_list() == [1995, 1968, None]
    unnamed = pl.DataFrame({"item_id": [1, 2], "title": ["Heat", "Fargo (1996)"]})
    assert "year" not in with_year(unnamed).columns


@pytest.mark.parametrize("file", sorted(SETTINGS.glob("*.toml")), ids=lambda file: file.stem)
def test_a_settings_file_names_systems_and_settings_that_exist(file: Path) -> None:
    study = DEFAULTS | read_toml(file)
    tasks = plan_tasks(
        "log.csv",
        None,
        config=Config.load(assignments=study["settings"]),
        systems=choose_systems(study["systems"]) if study["systems"] else (),
        variants=study["variants"],
        seeds=[0],
        budget_seconds=None,
        cutoffs=(20,),
    )
    assert tasks
    assert study["lines"].endswith(".jsonl")


def test_the_tables_of_the_page_are_those_of_the_lines() -> None:
    root = SETTINGS.parents[1]
    page = (root / "docs" / "baselines.md").read_text(encoding="utf-8")
    for table in tables(read_lines(root / "results" / "baselines.jsonl")).split("\n\n"):
        assert table in page
    assert measured_accuracy().ratio is not None
