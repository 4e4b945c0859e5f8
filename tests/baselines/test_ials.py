import numpy as np
import pytest

from beamtree.baselines import ials
from beamtree.baselines.ials import Ials
from beamtree.types import Float32Array
from tests.baselines.small_logs import ask, budget, dataset_of, whole


def test_a_new_history_is_folded_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one factor, a history of one item has the factor x = alpha y / (YtY + (alpha - 1) y^2 + regularisation)."""
    monkeypatch.setattr(ials, "FACTORS", (1,))
    monkeypatch.setattr(ials, "ALPHAS", (4.0,))
    monkeypatch.setattr(ials, "REGULARISATIONS", (0.5,))
    dataset = dataset_of([[0], [0], [0, 1]], num_items=3)
    fitted = Ials().fit(dataset, whole(dataset), budget=budget())
    scores = fitted.score(ask([0], [1], [0, 0]))
    # Items' factors are found again, up to a common sign, from what a history of one item gives: scores[0] = x * y.
    assert (scores[0] == scores[2]).all(), "repeats count once"
    ratios = scores[:2] / scores[:2, :1]
    np.testing.assert_allclose(ratios[0], ratios[1], rtol=1e-4, err_msg="one factor: all rows are proportional")
    y = ratios[0] / ratios[0, 0]
    scale = _scale_of_first_item(float(scores[0, 0]), y)
    factors = scale * y
    for item in (0, 1):
        expected = 4.0 * factors[item] / ((factors**2).sum() + 3.0 * factors[item] ** 2 + 0.5)
        np.testing.assert_allclose(scores[item], expected * factors, rtol=1e-3)


def _scale_of_first_item(score: float, y: Float32Array) -> float:
    """The factor s of item 0 for which a history of item 0 scores it so: 4 s^2 / (s^2 (|y|^2 + 3) + 0.5) = score."""
    return float(np.sqrt(0.5 * score / (4.0 - score * ((y**2).sum() + 3.0))))


def test_grids_and_seeds_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    dataset = dataset_of([generator.integers(0, 30, size=6).tolist() for _ in range(40)], num_items=30)
    monkeypatch.setattr(ials, "ITERATIONS", 1)
    scores = [
        Ials().fit(dataset, whole(dataset), budget=budget(seed=seed)).score(ask([1, 2])).tobytes() for seed in (0, 0, 1)
    ]
    assert scores[0] == scores[1] != scores[2]
