"""A second opinion: the whole score once more in NumPy, independent of torch and of the kernels, request by request."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.config import Config, ModelSettings
from beamtree.data.features import Features
from beamtree.data.requests import Requests
from beamtree.model.memory import ASKED_ITEMS, COMPANY_ASKED, FADED, POPULAR_ITEMS, Memory
from beamtree.model.normalisation import BATCH_NORM_EPSILON, LAYER_NORM_EPSILON
from beamtree.retrieval.scorers import arrays_by_part
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree

Float32Array = npt.NDArray[np.float32]


class NumpyScorer:
    """Any score of attention and memory, from arrays named by part."""

    def __init__(self, weights: Mapping[str, npt.NDArray[Any]], tree: ItemTree, *, config: Config) -> None:
        parts = arrays_by_part(weights)
        self._attention = parts.get("attention")
        self._memory = Memory.from_arrays(parts["memory"]) if "memory" in parts else None
        self._tree = tree
        self._settings = config.model

    def prepare(self, requests: Requests) -> "NumpyScores":
        """Scores for these requests."""
        return NumpyScores(self, requests)

    def score(self, requests: Requests, request: int, level: int, nodes: npt.NDArray[np.int64]) -> Float32Array:
        """Scores (n,) of nodes (n,)."""
        scores = np.zeros(len(nodes), dtype=np.float32)
        if self._attention is not None:
            history = requests.histories.take(slice(request, request + 1)).latest(self._settings.attention_history)[0]
            alone = requests.take(slice(request, request + 1))
            offset = sum(
                told_by(features, self._attention, of=of)
                for of, features in (("user", alone.user_features), ("context", alone.context))
                if features is not None and f"offset.{of}.embedding" in self._attention
            )
            scores += AttentionScores(
                self._attention, self._tree, settings=self._settings, history=history, offset=offset
            )(level, nodes)
        if self._memory is not None:
            evidence = leaf_evidence(self._memory, self._tree, requests, request)
            gate = self._memory.gates[level] if self._memory.gates else 1.0
            first, end = self._tree.leaf_ranges(nodes, level)
            least = -np.inf if level == self._tree.height else 0.0
            scores += [gate * max(evidence[begin:stop].max(), least) for begin, stop in zip(first, end, strict=True)]
        return scores


class NumpyScores:
    """Scores for the requests that they were prepared for."""

    def __init__(self, scorer: NumpyScorer, requests: Requests) -> None:
        self._scorer = scorer
        self._requests = requests

    def scores(self, request: int, level: int, nodes: npt.NDArray[np.int64]) -> Float32Array:
        """Scores (n,) of the nodes (n,) of a level."""
        return self._scorer.score(self._requests, request, level, nodes)


def leaf_evidence(memory: Memory, tree: ItemTree, requests: Requests, request: int) -> Float32Array:
    """What the memory says of every leaf (leaves,) for one request; 0 where nothing points or it is not eligible."""
    history, weights = requests.histories.row(request)[::-1], memory.weights
    of_item = np.zeros(tree.num_items)
    links = memory.transitions
    for age, source in enumerate(history[:ASKED_ITEMS]):
        if weights.fade**age < FADED:
            break
        own = slice(links.offsets[source], links.offsets[source + 1])
        of_item[links.items[own]] += weights.transitions * weights.fade**age * links.strengths[own].astype(np.float64)
    links = memory.company
    for source in np.unique(history[:COMPANY_ASKED]):
        own = slice(links.offsets[source], links.offsets[source + 1])
        of_item[links.items[own]] += weights.company * links.strengths[own].astype(np.float64)
    for item in np.unique(history):
        ages = np.flatnonzero(history == item)
        of_item[item] += weights.repeats * memory.returns[item] * np.log1p((weights.repeat_fade**ages).sum())
    excluded = None if requests.excluded is None else (requests.excluded.items, requests.excluded.offsets)
    eligibility = Eligibility(tree, allowed_items=requests.allowed, excluded_items=excluded)
    eligible = tree.item_at_leaf[eligibility.leaves(request)]
    by_popularity = sorted(eligible.tolist(), key=lambda item: (-memory.popularity[item], item))
    counts = set(by_popularity[:POPULAR_ITEMS]) | set(np.flatnonzero(of_item > 0).tolist())
    evidence = np.zeros(tree.num_leaves, dtype=np.float32)
    for item in eligible.tolist():
        popular = weights.popularity * memory.popularity[item] if item in counts else 0.0
        evidence[tree.leaf_of_item[item]] = of_item[item] + popular
    return evidence


def told_by(features: Features, weights: Mapping[str, npt.NDArray[Any]], *, of: str) -> Float32Array:
    """What the features of one user or context add to a layer, (width,)."""
    rows = weights[f"offset.{of}.embedding"][features.entries[0]]
    added: Float32Array = features.weights[0] @ rows
    if f"offset.{of}.projection" in weights:
        added = added + features.vectors[0] @ weights[f"offset.{of}.projection"]
    return added


class AttentionScores:
    """Scores nodes of any level for one history (positions,) of dense items; -1 is padding and contributes nothing.

    offset: (width,), added to the first layer.
    """

    def __init__(
        self,
        weights: Mapping[str, npt.NDArray[Any]],
        tree: ItemTree,
        *,
        settings: ModelSettings,
        history: npt.NDArray[np.int32],
        offset: Float32Array | int = 0,
    ) -> None:
        self._weights = weights
        self._offset = offset
        self._tree = tree
        self._settings = settings
        self._present = np.flatnonzero(history >= 0)
        self._items = history[self._present]

    def __call__(self, level: int, nodes: npt.NDArray[np.int64]) -> Float32Array:
        """Scores (n,) of the nodes (n,) of a level."""
        bias, matrix, interest = self._prepare(level)
        table, offset = self._weights["node_table"], self._tree.level_offsets[level]
        scores = np.empty(len(nodes), dtype=np.float32)
        for first in range(0, len(nodes), 4096):
            chunk = slice(first, first + 4096)
            vectors = table[nodes[chunk] + offset].astype(np.float32)
            scores[chunk] = self._score(vectors, bias=bias, matrix=matrix, interest=interest)
        return scores

    def _prepare(self, level: int) -> tuple[Float32Array, Float32Array, Float32Array]:
        """Bias (positions, hidden), attention matrix (positions * hidden, size), interest (positions, width)."""
        weights, size = self._weights, self._settings.embedding_dim
        if self._settings.network.history_table == "separate":
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
        hidden = hidden + self._offset
        last = len(self._settings.layers)
        for layer in range(last):
            if layer > 0:
                hidden = hidden @ weights[f"mlp.{layer}.weight"].T + weights[f"mlp.{layer}.bias"]
            hidden = _prelu(self._normalise(hidden, layer), weights["mlp.slopes"][layer])
        scores: Float32Array = hidden @ weights[f"mlp.{last}.weight"][0] + weights[f"mlp.{last}.bias"]
        return scores

    def _normalise(self, hidden: Float32Array, layer: int) -> Float32Array:
        weights, name = self._weights, f"norm.{layer}"
        match self._settings.network.normalisation:
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
