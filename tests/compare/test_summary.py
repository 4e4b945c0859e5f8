"""One row per system: the best first, with what lies between it and the others."""

from typing import Any

import numpy as np
import pytest

from beamtree.compare.summary import summarise


def result(system: str, seed: int, values: list[float]) -> dict[str, Any]:
    return {"system": system, "seed": seed, "metrics": {"f@20": float(np.mean(values))}, "per_user": {"f@20": values}}


def test_rows_are_ordered_by_the_mean_over_users_and_seeds() -> None:
    users = 40
    results = [
        result("popularity", 0, [0.1] * users),
        result("popularity", 1, [0.3] * users),
        result("ease", 0, [0.25] * users),
        {"system": "ials", "seed": 0, "left_out": "a reason"},
        {"system": "sasrec", "seed": 0, "failed": "another"},
    ]
    summary = summarise(results)
    assert [row.name for row in summary.rows] == ["ease", "popularity"]
    best, second = summary.rows
    assert best.behind is None
    assert second.behind is not None
    assert second.behind.estimate == pytest.approx(0.2 / 0.25 - 1)
    assert second.metric("f@20") == pytest.approx(0.2)
    assert second.spread("f@20") == pytest.approx(np.std([0.1, 0.3], ddof=1))
    assert best.spread("f@20") is None
    assert (summary.left_out, summary.failed) == ({"ials": "a reason"}, {"sasrec": "another"})


def test_an_interval_covers_the_luck_of_the_users() -> None:
    generator = np.random.default_rng(0)
    values = generator.random(200).tolist()
    [row] = summarise([result("ease", 0, values)]).rows
    assert row.interval.low < np.mean(values) < row.interval.high
    assert row.interval.high - row.interval.low == pytest.approx(4 * np.std(values) / np.sqrt(200), rel=0.2)
