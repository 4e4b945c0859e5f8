"""Folds of one system as one result."""

from typing import Any

import pytest

from beamtree.compare.folds import join_folds
from beamtree.compare.summary import summarise


def result(fold: int, values: list[float], **others: Any) -> dict[str, Any]:
    found = {"system": "ease", "seed": 0, "fold": [fold, 2], "users": len(values), "per_user": {"f@20": values}}
    return found | {"metrics": {"f@20": sum(values) / len(values), "coverage@20": 0.1 * fold}, **others}


def test_users_are_put_together_and_other_figures_averaged() -> None:
    first = result(0, [0.5, 0.5], fit_seconds=2.0, sweep=[{"effort": 20, "f@20": 0.4}], findings={"a": "x", "n": 3})
    second = result(1, [0.2], fit_seconds=4.0, sweep=[{"effort": 20, "f@20": 0.2}], findings={"a": "y", "n": 3})
    joined = join_folds([second, first])
    assert joined["per_user"] == {"f@20": [0.5, 0.5, 0.2]}
    assert joined["metrics"] == pytest.approx({"f@20": 0.4, "coverage@20": 0.05})
    assert (joined["users"], joined["fit_seconds"]) == (3, 3.0)
    assert joined["sweep"] == [{"effort": 20, "f@20": pytest.approx(0.3)}]
    assert joined["findings"] == {"a": "x", "n": 3}


def test_equal_users_of_two_folds_count_twice_and_a_single_result_stays_as_it_is() -> None:
    zeros = [result(fold, [0.0], settings={"layers": [64, 32]}) for fold in (0, 1)]
    joined = join_folds(zeros)
    assert joined["per_user"] == {"f@20": [0.0, 0.0]}
    assert joined["settings"] == {"layers": [64, 32]}
    assert join_folds(zeros[:1]) is zeros[0]


def test_a_summary_has_a_row_only_where_all_folds_were_measured() -> None:
    folds = [result(0, [0.5, 0.5]), result(1, [0.2])]
    [row] = summarise(folds).rows
    assert len(row.results) == 1
    assert row.metric("f@20") == pytest.approx(0.4)
    failed = {"system": "ease", "seed": 0, "fold": [1, 2], "failed": "a reason"}
    summary = summarise([folds[0], failed])
    assert not summary.rows
    assert summary.failed == {"ease": "a reason"}
