"""The page of results, from folders as compare and reproduce leave them."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from experiments.report import NOTHING, main, render

USERS = 40
METRICS = ("f@20", "ndcg@20", "recall@20", "precision@20")


def write_fit(folder: Path, system: str, value: float, *, label: str | None = None, **fields: Any) -> None:
    name = (label or system).replace(", ", "-").replace(" ", "-")
    result = {
        "key": "k",
        "system": system,
        **({} if label is None else {"label": label}),
        "seed": 0,
        "metrics": {**dict.fromkeys(METRICS, value), "coverage@20": 0.5},
        "per_user": {metric: [value] * USERS for metric in METRICS},
        "users": USERS,
        "catalogue": 10,
        "protocol": "paper",
        "ms_batch": 2.0,
        "step_seconds": {system: 0.1},
        "index_bytes": 2_000_000,
        **fields,
    }
    (folder / "results").mkdir(parents=True, exist_ok=True)
    (folder / "results" / f"{name}-seed0.json").write_text(json.dumps(result))


def write_curve(folder: Path, label: str, values: list[float]) -> None:
    lines: list[dict[str, Any]] = [{"key": "k", "system": "dtr-u", "label": label, "seed": 0}]
    for place, value in enumerate(values):
        point = {
            "learner": "dtr-u",
            "round": place,
            "learning_rate": 0.1,
            "instances": 100 * (place + 1),
            "f@20": value,
        }
        lines += [{**point, "is_round": False}, {**point, "is_round": True}]
    (folder / "curves").mkdir(parents=True)
    (folder / "curves" / "one.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_without_results_the_page_says_so(results: Path) -> None:
    assert NOTHING in render(results)[0]


def test_a_comparison_has_ratios_and_the_order(results: Path) -> None:
    log = results / "compare" / "films"
    for system, value in (("beamtree", 0.3), ("dtr-t-rl", 0.1), ("dtr-t", 0.2)):
        write_fit(log, system, value)
    (log / "results" / "ease-seed0.json").write_text(
        json.dumps({"system": "ease", "seed": 0, "left_out": "too\nlarge"})
    )
    text = render(results)[0]
    assert "## films: every system" in text
    assert "| dtr-t | tree | 1.500 [1.500, 1.500] | 1.500 [1.500, 1.500] | ahead |" in text
    assert "| dtr-t-rl > dtr-t | 0.500 [0.500, 0.500] | 0 of 1 | the other way round |" in text
    assert "- ease: too large" in text
    assert NOTHING not in text


def test_an_experiment_that_is_still_growing_is_shown_with_its_figure(results: Path, tmp_path: Path) -> None:
    write_curve(results / "reproduce" / "tree-updating-ml-1m", "dtr-u, all rounds", [0.1, 0.25])
    text, figures = render(results)
    assert "| 2 | 0.2500 |" in text
    assert set(figures) == {
        "reproduce-tree-updating-ml-1m-rounds.svg",
        "reproduce-tree-updating-ml-1m-instances.svg",
    }
    for svg in figures.values():
        assert "var(" not in svg
        assert ElementTree.fromstring(svg).tag.endswith("svg")
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    stale = tmp_path / "docs" / "figures" / "reproduce-gone.svg"
    kept = tmp_path / "docs" / "figures" / "study-alpha.svg"
    stale.write_text("")
    kept.write_text("")
    assert main(tmp_path) == 0
    assert "figures/reproduce-tree-updating-ml-1m-rounds.svg" in (tmp_path / "docs" / "results.md").read_text()
    assert (stale.exists(), kept.exists()) == (False, True)


def test_costs_are_views_of_the_same_fits(results: Path) -> None:
    folder = results / "reproduce" / "results-films"
    write_fit(folder, "dtr-t-rl", 0.2)
    write_fit(folder, "otm", 0.1, ms_batch=4.0)
    text = render(results)[0]
    assert "| OTM | 0.1000 | 0.500 [0.500, 0.500] | 0.1470 (0.93) |" in text
    assert "## films: inference-time" in text
    assert "| OTM | 0.16 | 2.00 | 5.57 (1.00) |" in text
    assert "## films: memory" in text
    assert "| OTM | 100 | 1.00 | 261.4 (1.65) |" in text
