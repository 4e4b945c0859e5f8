"""With and without item features: both fits on one split, by how often the labels' items were met in training."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from beamtree.errors import InputError
from experiments.features import main, with_year
from tests.small import two_group_log

TINY = [
    "estimator.width=8",
    "estimator.recipe.layers=1",
    "estimator.epochs=2",
    "data.min_interactions=2",
    "data.min_held_out=2",
    "retrieval.beam_width=8",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log whose items are told apart by their genre, beside a table of them."""
    (tmp_path / "groups").mkdir()
    log = two_group_log(users_per_group=30, items_per_group=20).frame
    log.write_parquet(tmp_path / "groups" / "interactions.parquet")
    items = log.select("item_id").unique(maintain_order=True)
    items.with_columns(
        title=pl.col("item_id") + " (1995)", genres=pl.col("item_id").str.slice(0, 1) + "|film"
    ).write_parquet(tmp_path / "groups" / "items.parquet")
    monkeypatch.setenv("BEAMTREE_DATA", str(tmp_path))
    return tmp_path


def measured(folder: Path, *options: str) -> list[dict[str, Any]]:
    out, settings = folder / "lines.jsonl", [part for assignment in TINY for part in ("--set", assignment)]
    assert main(["groups", "--out", str(out), *settings, *options]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_a_line_has_both_fits_and_is_measured_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = measured(folder)
    assert [text.partition(" ")[0] for text in line["features"]] == ["category", "genres", "year"]
    assert line["users"]["all"] == 6
    without, featured = line["metrics"]["without"]["all"], line["metrics"]["with"]["all"]
    ratio, low, high = line["ratios"]["all"]["ndcg@20"]
    assert ratio == pytest.approx(featured["ndcg@20"] / without["ndcg@20"], abs=1e-3)
    assert low <= ratio <= high
    assert line["settings"]["estimator"]["item_features"] is False
    assert measured(folder, "--table") == [line]
    shown = capsys.readouterr()
    assert "measured already" in shown.err
    assert "| all items | 1 | 6 |" in shown.out


def test_rare_and_cold_labels_are_measured_apart(folder: Path) -> None:
    file = folder / "groups" / "interactions.parquet"
    log = pl.read_parquet(file)
    last = log.group_by("user_id", maintain_order=True).agg(pl.col("item_id").first().str.slice(0, 1), timestamp=99)
    unmet = last.head(40).with_columns(item_id=pl.col("item_id") + "new" + pl.int_range(pl.len()).cast(pl.String))
    pl.concat([log, unmet.cast(log.schema)]).sort("user_id", "timestamp").write_parquet(file)
    (line,) = measured(folder)
    users = line["users"]
    assert users["cold"] >= 1
    assert users["all"] >= users["cold"]
    assert set(line["metrics"]["with"]) == set(users)


def test_another_item_table_stands_in_and_needs_features(folder: Path) -> None:
    plain = folder / "plain.parquet"
    pl.read_parquet(folder / "groups" / "items.parquet").select("item_id").write_parquet(plain)
    with pytest.raises(InputError, match="no column that can be a feature"):
        measured(folder, "--items", str(plain))
    assert not (folder / "lines.jsonl").exists()


def test_years_are_read_from_titles_that_end_in_them() -> None:
    titles = pl.DataFrame({"item_id": [1, 2, 3], "title": ["Heat (1995)", "2001 (1968) ", "Untitled"]})
    assert with_year(titles)["year"].to_list() == [1995, 1968, None]
    unnamed = pl.DataFrame({"item_id": [1, 2], "title": ["Heat", "Fargo (1996)"]})
    assert "year" not in with_year(unnamed).columns
