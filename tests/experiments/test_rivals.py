"""Lines against rivals: measured once, on one split or on folds, and shown as tables."""

import json
from pathlib import Path

import pytest

from experiments.rivals import MODEL, SCAN, main
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
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "groups").mkdir()
    two_group_log(users_per_group=30, items_per_group=20).frame.write_parquet(
        tmp_path / "groups" / "interactions.parquet"
    )
    monkeypatch.setenv("BEAMTREE_DATA", str(tmp_path))
    return tmp_path / "lines.jsonl"


def measured(out: Path, *options: str) -> list[dict[str, object]]:
    settings = [part for assignment in TINY for part in ("--set", assignment)]
    assert main(["groups", "--out", str(out), "--baselines", "popularity,sasrec", *settings, *options]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_a_line_has_every_system_and_is_measured_once(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = measured(out)
    assert list(line["metrics"]) == [MODEL, SCAN, "popularity", "sasrec"]  # type: ignore[call-overload]
    low, high = line["ratios"]["popularity"]["f@20"][1:]  # type: ignore[index]
    assert low <= high
    assert line["users"] == 6
    assert measured(out) == [line]
    assert "measured already" in capsys.readouterr().err


def test_over_folds_every_user_is_tested_once(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = measured(out, "--folds", "3", "--table")
    assert line["users"] == 60
    assert len(line["weighing"]) == 3  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert "| groups" in shown
    assert "popularity" in shown
