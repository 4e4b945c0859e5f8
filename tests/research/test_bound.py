"""The terms of the bound from weights whose norms are known."""

from typing import Any

import numpy as np
import pytest

from beamtree.tree.build import plant
from research.bound import Constants, LayerNorms, NetworkNorms, bound_terms, measure_norms
from tests.small import Arrays, model_settings

SIZES: dict[str, Any] = {"embedding_dim": 1, "windows": (2, 1), "attention_hidden": 2, "layers": (2, 2, 2)}
SETTINGS = model_settings(**SIZES)


def weights() -> Arrays:
    """Layers with rows (1, 2, -3) and (0, 1, 0), then (1, 1) twice, then (0.5, -0.5); three vectors of length one."""
    square = np.array([[1.0, 1.0], [0.0, 1.0]])
    return {
        "node_table": np.array([[1.0], [-2.0], [0.5]]),
        "attention.hidden.weight": np.array([[1.0, -1.0, 1.0], [0.0, 0.0, 2.0]]),
        "attention.output.weight": np.array([[1.5, 0.5]]),
        "attention.hidden_slope": np.array([0.2]),
        "attention.output_slope": np.array([-1.5]),
        "mlp.0.weight": np.array([[1.0, 2.0, -3.0], [0.0, 1.0, 0.0]]),
        "mlp.1.weight": square,
        "mlp.2.weight": square,
        "mlp.3.weight": np.array([[0.5, -0.5]]),
        "mlp.slopes": np.array([0.1, 0.3, 0.2]),
    }


def test_norms() -> None:
    norms = measure_norms(weights(), settings=SETTINGS)
    assert [layer.largest_row for layer in norms.layers] == [6.0, 2.0, 2.0, 1.0]
    assert [layer.largest_column for layer in norms.layers] == [3.0, 2.0, 2.0, 0.5]
    assert [layer.largest_row for layer in norms.attention] == [3.0, 2.0]
    assert norms.layers[3].spectral == pytest.approx(np.sqrt(0.5))
    assert (norms.node_norm, norms.item_norm, norms.lipschitz) == (2.0, 2.0, 1.5)
    assert norms.history_length == 3
    assert norms.unbounded == ("biases",)


def test_a_table_of_its_own_and_batch_statistics() -> None:
    arrays = weights() | {"item_table": np.array([[3.0], [4.0]])}
    for layer in range(3):
        arrays |= {
            f"norm.{layer}.weight": np.array([2.0, 2.0]),
            f"norm.{layer}.running_var": np.full(2, 4.0 - 1e-5),
        }
    norms = measure_norms(arrays, settings=model_settings(**(SIZES | {"normalisation": "batch"})))
    assert norms.item_norm == 4.0
    assert [layer.largest_row for layer in norms.layers] == pytest.approx([6.0, 2.0, 2.0, 1.0])
    assert (
        "layer normalisation"
        in measure_norms(weights(), settings=model_settings(**(SIZES | {"normalisation": "layer"}))).unbounded
    )


def test_the_theorem_by_hand() -> None:
    """Eight items, B = 2, H = 3: tau^2 = 24. c = 1, B_0 = 2, B_a = 1, B_1 = 2, B_2 = 3, K = 5, m = 100.

    B_w1 = 9, B_w2 = 2 * 9 * 2 = 36; complexity = 8 * 24 * 16 * (2 + 45 + 180 tau) / 10.
    """
    norms = NetworkNorms(
        layers=tuple(_layer(2.0, 1.0) for _ in range(4)),
        attention=tuple(_layer(3.0, 1.0) for _ in range(2)),
        node_norm=2.0,
        item_norm=1.0,
        lipschitz=1.0,
        history_length=5,
        unbounded=("biases",),
    )
    constants = Constants(
        instances=100,
        empirical_loss=4.0,
        divergence=0.5,
        label_discrepancy=0.25,
        assumed_error=1e-4,
        largest_score=3.0,
        delta=0.04,
    )
    terms = bound_terms(norms, constants, tree=plant(np.arange(8, dtype=np.int32), branching=2))
    tau = np.sqrt(24.0)
    assert terms.tau == pytest.approx(tau)
    assert terms.complexity == pytest.approx(8 * 24 * 16 * (47 + 180 * tau) / 10)
    assert terms.complexity_induced_norm == pytest.approx(8 * 24 * 1 * (2 + 5 * 1 + 5 * 4 * tau) / 10)
    assert terms.concentration == pytest.approx((8 * np.log(tau) + 8 * 3 * 3) * np.sqrt(2 * np.log(100) / 100))
    assert terms.estimation == pytest.approx(0.25 * (6 + np.log(8)))
    assert terms.total == pytest.approx(
        terms.empirical_loss + terms.estimation + terms.divergence + terms.complexity + terms.concentration
    )


def _layer(row: float, column: float) -> LayerNorms:
    return LayerNorms("layer", (2, 2), largest_row=row, largest_column=column, spectral=1.0)
