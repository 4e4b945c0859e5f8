"""The terms of the generalisation bound (Theorem 4, the paper's final one), computed from trained weights.

    E[L*] <= empirical loss + g(eps) (2 B_M + ln |Y|) + sum_j E[KL(Q_j || P_j)]
             + 8 tau^2 c^(L-1) B_1^L (B_0 + K B_w1 + K B_w2 tau) / sqrt(m)
             + (8 ln tau + 8 H B_M) sqrt(2 ln(4 / delta) / m)
    tau = sqrt((2B - 1) |Y| / (B - 1)), B_w1 = c^2 B_2^2 B_a^2, B_w2 = c^2 B_0 B_2^2 (B_a^2 + B_a)

It bounds the summed softmax loss of the worst network with such norms, in nats. It is not an accuracy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.config import ModelSettings
from beamtree.model.normalisation import BATCH_NORM_EPSILON
from beamtree.tree.item_tree import ItemTree

Weights = Mapping[str, npt.NDArray[Any]]

CONFIDENCE_DELTA = 0.05


@dataclass(frozen=True)
class LayerNorms:
    """Norms of one weight matrix.

    largest_row: the largest sum of absolute values in a row, which the proof's steps need; largest_column: the same in
    a column, the induced 1-norm of the theorem's notation; spectral: the largest singular value, for comparison.
    """

    name: str
    shape: tuple[int, int]
    largest_row: float
    largest_column: float
    spectral: float


@dataclass(frozen=True)
class NetworkNorms:
    """What the theorem needs to know of the weights.

    layers: the MLP's matrices (W_1 .. W_L), batch normalisation folded in; attention: the two of the attention unit.
    node_norm: B_0, item_norm: B_a, the longest vectors of nodes and of history items. lipschitz: c, of the activations.
    unbounded: parts of the network that the theorem does not know, and that are left out.
    """

    layers: tuple[LayerNorms, ...]
    attention: tuple[LayerNorms, ...]
    node_norm: float
    item_norm: float
    lipschitz: float
    history_length: int
    unbounded: tuple[str, ...]


@dataclass(frozen=True)
class Constants:
    """The measured constants of the theorem: sizes, the training set, and what the other diagnostics found.

    label_discrepancy: g(eps), flipped labels per target where the estimator's probabilities are wrong by assumed_error;
    None where training used no rectified labels, which leaves that term out.
    divergence: the sampler's KL(Q || P) summed over levels. empirical_loss: training loss, summed over levels.
    largest_score: B_M, the largest absolute score met.
    """

    instances: int
    empirical_loss: float
    divergence: float
    label_discrepancy: float | None
    assumed_error: float
    largest_score: float
    delta: float = CONFIDENCE_DELTA


@dataclass(frozen=True)
class BoundTerms:
    """The five terms of the right-hand side, in nats, and what the two that come from weights are made of."""

    empirical_loss: float
    estimation: float
    divergence: float
    complexity: float
    complexity_induced_norm: float
    concentration: float
    tau: float
    layer_norm: float
    attention_norm: float
    total: float
    constants: Constants
    norms: NetworkNorms


def measure_norms(weights: Weights, *, settings: ModelSettings) -> NetworkNorms:
    """The norms of trained weights, as the theorem names them."""
    unbounded = ["biases"]
    if settings.network.normalisation == "layer":
        unbounded.append("layer normalisation")
    slopes = np.concatenate(
        [weights[name].reshape(-1) for name in ("mlp.slopes", "attention.hidden_slope", "attention.output_slope")]
    )
    node_norm = _longest(weights["node_table"])
    return NetworkNorms(
        layers=tuple(
            _norms(f"MLP layer {layer + 1}", _layer(weights, layer, settings=settings))
            for layer in range(len(settings.layers) + 1)
        ),
        attention=tuple(
            _norms(f"attention {name}", weights[f"attention.{name}.weight"]) for name in ("hidden", "output")
        ),
        node_norm=node_norm,
        item_norm=_longest(weights["item_table"]) if "item_table" in weights else node_norm,
        lipschitz=float(max(1.0, np.abs(slopes).max())),
        history_length=settings.attention_history,
        unbounded=tuple(unbounded),
    )


def bound_terms(norms: NetworkNorms, constants: Constants, *, tree: ItemTree) -> BoundTerms:
    """All terms; the complexity term also with the theorem's own norm, the induced 1-norm."""
    tau = float(np.sqrt((2 * tree.branching - 1) * tree.num_items / (tree.branching - 1)))
    layer_norm, attention_norm = (max(layer.largest_row for layer in part) for part in (norms.layers, norms.attention))
    induced = [max(layer.largest_column for layer in part) for part in (norms.layers, norms.attention)]
    complexity = _complexity(norms, layer_norm, attention_norm, tau=tau, instances=constants.instances)
    concentration = float(
        (8 * np.log(tau) + 8 * tree.height * constants.largest_score)
        * np.sqrt(2 * np.log(4 / constants.delta) / constants.instances)
    )
    discrepancy = constants.label_discrepancy or 0.0
    estimation = float(discrepancy * (2 * constants.largest_score + np.log(tree.num_items)))
    return BoundTerms(
        empirical_loss=constants.empirical_loss,
        estimation=estimation,
        divergence=constants.divergence,
        complexity=complexity,
        complexity_induced_norm=_complexity(norms, *induced, tau=tau, instances=constants.instances),
        concentration=concentration,
        tau=tau,
        layer_norm=layer_norm,
        attention_norm=attention_norm,
        total=constants.empirical_loss + estimation + constants.divergence + complexity + concentration,
        constants=constants,
        norms=norms,
    )


def _complexity(norms: NetworkNorms, layer_norm: float, attention_norm: float, *, tau: float, instances: int) -> float:
    c, longest_node, longest_item = norms.lipschitz, norms.node_norm, norms.item_norm
    of_items = c**2 * attention_norm**2 * longest_item**2
    of_pairs = c**2 * longest_node * attention_norm**2 * (longest_item**2 + longest_item)
    inner = longest_node + norms.history_length * (of_items + of_pairs * tau)
    depth = len(norms.layers)
    return float(8 * tau**2 * c ** (depth - 1) * layer_norm**depth * inner / np.sqrt(instances))


def _layer(weights: Weights, layer: int, *, settings: ModelSettings) -> npt.NDArray[np.float64]:
    """A matrix of the MLP as it acts at rest: batch normalisation scales its rows."""
    matrix = np.asarray(weights[f"mlp.{layer}.weight"], dtype=np.float64)
    if settings.network.normalisation == "batch" and layer < len(settings.layers):
        gain, variance = weights[f"norm.{layer}.weight"], weights[f"norm.{layer}.running_var"]
        matrix = matrix * (gain / np.sqrt(variance + BATCH_NORM_EPSILON))[:, None]
    return matrix


def _norms(name: str, matrix: npt.NDArray[Any]) -> LayerNorms:
    values = np.asarray(matrix, dtype=np.float64)
    return LayerNorms(
        name=name,
        shape=(values.shape[0], values.shape[1]),
        largest_row=float(np.abs(values).sum(axis=1).max()),
        largest_column=float(np.abs(values).sum(axis=0).max()),
        spectral=float(np.linalg.norm(values, ord=2)),
    )


def _longest(table: npt.NDArray[Any]) -> float:
    return max(
        float(np.linalg.norm(np.asarray(table[first : first + 2**16], dtype=np.float64), axis=1).max())
        for first in range(0, len(table), 2**16)
    )
