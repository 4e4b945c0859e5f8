import numpy as np
import pytest

from beamtree.baselines import ease
from beamtree.baselines.ease import Ease
from beamtree.errors import BaselineUnavailable
from tests.baselines.small_logs import ask, budget, dataset_of, whole


def test_weights_solve_the_constrained_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each column of B minimises |x - X b|^2 + lambda |b|^2 over weights of the other items."""
    monkeypatch.setattr(ease, "LAMBDAS", (3.0,))
    generator = np.random.default_rng(0)
    matrix = generator.random((30, 6)) < 0.4
    matrix[np.arange(30), generator.integers(0, 6, size=30)] = True
    dataset = dataset_of([np.flatnonzero(row).tolist() for row in matrix], num_items=6)
    fitted = Ease().fit(dataset, whole(dataset), budget=budget())
    votes = fitted.score(ask(*[[item] for item in range(6)]))
    had = matrix.astype(float)
    for item in range(6):
        others = [other for other in range(6) if other != item]
        left = had[:, others].T @ had[:, others] + 3.0 * np.eye(5)
        expected = np.linalg.solve(left, had[:, others].T @ had[:, item])
        np.testing.assert_allclose(votes[others, item], expected, rtol=1e-4)
        assert votes[item, item] == 0.0
    both = fitted.score(ask([0, 3, 3]))[0]
    np.testing.assert_allclose(both, votes[0] + votes[3], rtol=1e-5, err_msg="repeats count once")


def test_a_large_catalogue_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ease, "MAX_ITEMS", 3)
    dataset = dataset_of([[0, 1]], num_items=4)
    with pytest.raises(BaselineUnavailable, match="at most 3 items, and this log has 4"):
        Ease().fit(dataset, whole(dataset), budget=budget())
