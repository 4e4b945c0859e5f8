"""The cost model of a cluster, and the page that its tables are in."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cluster_cost import (
    BYTES_PER_SECOND,
    Measured,
    busy_workers,
    check_table,
    limits_table,
    replicated,
    sharded,
    touched_rows,
    with_tables,
)

ROOT = Path(__file__).resolve().parents[2]
FIGURES = {
    "settings": {"items": 10**9, "positions": 2000, "cores": 2},
    "milliseconds_per_step": {"1": 104.0, "2": 60.0},
    "bytes_per_step": 900_000.0,
    "microseconds_per_row": 1.0,
    "users_per_second": {"two_actors": 2000.0, "two_threads": 2100.0},
    "recommend_efficiency": 0.95,
}


def test_the_page_has_the_tables_of_the_committed_figures_and_no_others() -> None:
    page, committed = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8"), ROOT / "results" / "cluster.json"
    if committed.is_file():
        assert with_tables(page, json.loads(committed.read_text(encoding="utf-8"))) == page
    else:
        assert "No run on a quiet machine has been committed yet" in page
        assert "| items |" not in page
    assert "| items |" in with_tables(page, FIGURES)


def test_the_parts_of_a_step_by_hand() -> None:
    """Among a thousand million items nothing is touched twice: 1,000 positions and 1,000 negatives are 2,000 rows."""
    measured = Measured.read(FIGURES)
    assert touched_rows(1000, items=10**9) == pytest.approx(2000, rel=1e-5)
    assert measured.seconds_per_position == pytest.approx((0.104 - 0.004) / 2000, rel=1e-5)
    step = replicated(measured, items=10**9, workers=2, positions=1000, bandwidth=BYTES_PER_SECOND, round_trip=0.0)
    assert step.computing == pytest.approx(0.05, rel=1e-5)
    assert step.updating == pytest.approx(0.004, rel=1e-5)
    assert step.sent == pytest.approx(4 * 100_300 + 2000 * 260, rel=1e-5)
    assert step.network == pytest.approx(step.sent / BYTES_PER_SECOND)


def test_few_items_are_touched_again_and_again() -> None:
    assert touched_rows(10**6, items=500) == pytest.approx(500)


def test_traffic_grows_with_the_workers_unless_rows_are_sharded() -> None:
    measured = Measured.read(FIGURES)
    sent = {
        kind: [
            kind(measured, items=10**8, workers=workers, positions=1600, bandwidth=1e9, round_trip=0.0).sent
            for workers in (8, 64)
        ]
        for kind in (replicated, sharded)
    }
    assert sent[replicated][1] / sent[replicated][0] == pytest.approx(9.0, rel=0.3)
    assert sent[sharded][1] / sent[sharded][0] < 1.2


def test_the_page_goes_from_a_million_items_to_a_thousand_million_and_from_one_worker_to_64() -> None:
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    for name in ("replicated", "sharded"):
        header, _, *rows = page.partition(f"<!-- {name} -->\n")[2].partition("<!-- end -->")[0].strip().splitlines()
        columns = [cell.strip() for cell in header.strip("|").split("|")]
        cells = [dict(zip(columns, map(str.strip, row.strip("|").split("|")), strict=True)) for row in rows]
        assert {(cell["items"], cell["workers"]) for cell in cells} == {
            (f"10^{power}", workers) for power in (6, 7, 8, 9) for workers in ("1", "2", "8", "64")
        }
        assert {"MB sent each", "ms", "network", "$ per million steps", "$ per million users and epoch"} <= set(columns)
        assert {cell["network"] for cell in cells if cell["workers"] == "1"} == {"0%"}


def test_the_limits_by_hand() -> None:
    """N workers update N x 2,600 rows in as many microseconds and send (N - 1) x 260 bytes for each; 80 ms is 1,600
    positions' share."""
    measured = Measured.read(FIGURES)
    workers = busy_workers(measured)
    busy = [
        2_600e-6 * n + (4 * 100_300 * 2 * (n - 1) / n + (n - 1) * 2_600 * 260) / BYTES_PER_SECOND + 3 * (n - 1) * 2e-4
        for n in (workers - 1, workers)
    ]
    assert busy[0] < 1_600 * measured.seconds_per_position < busy[1]
    assert "| memory of 32 GB for tables | 42 million items |" in limits_table(measured)


def test_a_run_on_one_core_is_called_so() -> None:
    measured = Measured.read(FIGURES)
    assert "Repeat it" not in check_table(measured)
    assert "had 1 core" in check_table(replace(measured, cores=1))


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="a place for the table 'check'"):
        with_tables("nothing here", FIGURES)
