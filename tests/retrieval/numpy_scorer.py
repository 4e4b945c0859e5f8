"""The preference network in NumPy, factored, for one history: what serves where no compiler was at hand."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.config import ModelSettings
from beamtree.tree.item_tree import ItemTree

Float32Array = npt.NDArray[np.float32]

LAYER_NORM_EPSILON = 1e-5
BATCH_NORM_EPSILON = 1e-5
NODES_AT_A_TIME = 4096


class NumpyScorer:
    """Scores nodes of any level for one history (positions,) of dense items; -1 is padding and contributes nothing."""

    def __init__(
        self,
        weights: Mapping[str, npt.NDArray[Any]],
        tree: ItemTree,
        *,
        settings: ModelSettings,
        history: npt.NDArray[np.int32],
    ) -> None:
        self._weights = weights
        self._tree = tree
        self._settings = settings
        self._present = np.flatnonzero(history >= 0)
        self._items = history[self._present]

    def __call__(self, level: int, nodes: npt.NDArray[np.int64]) -> Float32Array:
        """Scores (n,) of the nodes (n,) of a level."""
        bias, matrix, interest = self._prepare(level)
        table, offset = self._weights["node_table"], self._tree.level_offsets[level]
        scores = np.empty(len(nodes), dtype=np.float32)
        for first in range(0, len(nodes), NODES_AT_A_TIME):
            chunk = slice(first, first + NODES_AT_A_TIME)
            vectors = table[nodes[chunk] + offset].astype(np.float32)
            scores[chunk] = self._score(vectors, bias=bias, matrix=matrix, interest=interest)
        return scores

    def _prepare(self, level: int) -> tuple[Float32Array, Float32Array, Float32Array]:
        """Bias (positions, hidden), attention matrix (positions * hidden, size), interest (positions, width)."""
        weights, size = self._weights, self._settings.embedding_dim
        if self._settings.history_table == "separate":
            history = weights["item_table"][self._items]
        else:
            rows = self._tree.item_ancestors(self._items, level) + self._tree.level_offsets[level]
            history = weights["node_table"][rows].astype(np.float32)
        hidden = weights["attention.hidden.weight"]
        of_item, of_product, of_node = hidden[:, :size], hidden[:, size : 2 * size], hidden[:, 2 * size :]
        matrix = of_product * history[:, None, :] + of_node
        window_of_position = np.repeat(np.arange(len(self._settings.windows)), self._settings.windows)[self._present]
        per_window = weights["mlp.0.weight"][:, : len(self._settings.windows) * size].reshape(
            -1, len(self._settings.windows), size
        )
        interest = np.einsum("kd,okd->ko", history, per_window[:, window_of_position])
        return history @ of_item.T + weights["attention.hidden.bias"], matrix.reshape(-1, size), interest

    def _score(
        self, vectors: Float32Array, *, bias: Float32Array, matrix: Float32Array, interest: Float32Array
    ) -> Float32Array:
        weights, size = self._weights, self._settings.embedding_dim
        sums = (vectors @ matrix.T).reshape(len(vectors), *bias.shape) + bias
        activated = _prelu(sums, weights["attention.hidden_slope"])
        attention = _prelu(
            activated @ weights["attention.output.weight"][0] + weights["attention.output.bias"],
            weights["attention.output_slope"],
        )
        hidden = attention @ interest + vectors @ weights["mlp.0.weight"][:, -size:].T + weights["mlp.0.bias"]
        for layer in range(3):
            if layer > 0:
                hidden = hidden @ weights[f"mlp.{layer}.weight"].T + weights[f"mlp.{layer}.bias"]
            hidden = _prelu(self._normalise(hidden, layer), weights["mlp.slopes"][layer])
        scores: Float32Array = hidden @ weights["mlp.3.weight"][0] + weights["mlp.3.bias"]
        return scores

    def _normalise(self, hidden: Float32Array, layer: int) -> Float32Array:
        weights, name = self._weights, f"norm.{layer}"
        match self._settings.normalisation:
            case "none":
                return hidden
            case "layer":
                mean, variance = hidden.mean(axis=1, keepdims=True), hidden.var(axis=1, keepdims=True)
                scaled = (hidden - mean) / np.sqrt(variance + LAYER_NORM_EPSILON)
            case "batch":
                spread = np.sqrt(weights[f"{name}.running_var"] + BATCH_NORM_EPSILON)
                scaled = (hidden - weights[f"{name}.running_mean"]) / spread
        normalised: Float32Array = scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]
        return normalised


def _prelu(values: Float32Array, slope: npt.NDArray[Any]) -> Float32Array:
    return np.where(values > 0, values, slope * values)
