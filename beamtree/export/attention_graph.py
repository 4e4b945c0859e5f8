"""The attention network as ONNX operators, for one request, in factored form."""

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from beamtree.config import ModelSettings
from beamtree.export.graph import GraphBuilder
from beamtree.export.history_graph import latest_items
from beamtree.model.normalisation import BATCH_NORM_EPSILON, LAYER_NORM_EPSILON
from beamtree.native.offset_arrays import OFFSET_TABLES
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray


class AttentionGraph:
    """Adds the factored network to a graph. `read_history` comes first, then `score` for any level.

    Attention is laid out as (hidden, positions, nodes), so that its output is one row times a matrix. weights: as
    `fold_normalisation` gives them. offset: (first layer's width,), what the request adds to the first layer; "" where
    nothing is read beside its history.
    """

    def __init__(
        self,
        graph: GraphBuilder,
        weights: Mapping[str, AnyArray],
        *,
        tree: ItemTree,
        settings: ModelSettings,
        offset: str,
    ) -> None:
        self._graph = graph
        self._tree = tree
        self._settings = settings
        self._weights = weights
        self._request_offset = offset
        self._present = self._leaves = self._vectors = ""

    def read_history(self, history: str) -> None:
        """Look at a history (entries,) of items, oldest first, -1 for none; the latest of them are read."""
        graph = self._graph
        items, present = latest_items(graph, history, length=self._settings.attention_history)
        column = graph.apply("Unsqueeze", present, graph.integers(1))
        self._present = graph.apply("Cast", column, to=TensorProto.FLOAT)
        if self._settings.network.history_table == "separate":
            self._vectors = self._rows("item_table", items)
        else:
            leaf_of_item = graph.constant("leaf_of_item", self._tree.leaf_of_item)
            leaves = graph.apply("Gather", leaf_of_item, items)
            self._leaves = graph.apply("Cast", leaves, to=TensorProto.INT64)

    def score(self, nodes: str, level: int) -> str:
        """Scores (n,) of nodes (n,) of a level."""
        graph, settings = self._graph, self._settings
        size, hidden, length = settings.embedding_dim, settings.network.attention_hidden, settings.attention_history
        history = self._history(level)
        vectors = self._rows("node_table", graph.apply("Add", nodes, self._offset(level)))

        of_item, of_product, of_node = np.split(self._weights["attention.hidden.weight"], 3, axis=1)
        product = graph.apply(
            "Mul", history, graph.constant("attention_of_product", of_product.reshape(hidden, 1, size))
        )
        matrix = graph.apply("Add", product, graph.constant("attention_of_node", of_node.reshape(hidden, 1, size)))
        bias = graph.apply(
            "Gemm",
            graph.constant("attention_of_item", of_item),
            history,
            graph.constant("attention_bias", self._weights["attention.hidden.bias"].reshape(hidden, 1)),
            transB=1,
        )
        sums = graph.apply(
            "Gemm",
            graph.apply("Reshape", matrix, graph.integers(hidden * length, size)),
            vectors,
            graph.apply("Reshape", bias, graph.integers(hidden * length, 1)),
            transB=1,
        )
        activated = self._prelu(sums, self._weights["attention.hidden_slope"])
        output = graph.constant("attention_output", self._weights["attention.output.weight"])
        flat = graph.apply("MatMul", output, graph.apply("Reshape", activated, graph.integers(hidden, -1)))
        attention = graph.apply(
            "Add",
            graph.apply("Reshape", flat, graph.integers(length, -1)),
            graph.constant("attention_output_bias", self._weights["attention.output.bias"]),
        )
        attention = graph.apply("Mul", self._prelu(attention, self._weights["attention.output_slope"]), self._present)
        return self._decide(attention, history=history, vectors=vectors)

    def _decide(self, attention: str, *, history: str, vectors: str) -> str:
        """The layers above the attention (positions, n): scores (n,)."""
        graph, settings, weights = self._graph, self._settings, self._weights
        size, windows = settings.embedding_dim, settings.windows
        first = weights["mlp.0.weight"]
        per_window = first[:, : len(windows) * size].reshape(-1, len(windows), size).transpose(1, 2, 0)
        of_position = graph.constant("interest", per_window[np.repeat(np.arange(len(windows)), windows)])
        interest = graph.apply("MatMul", graph.apply("Unsqueeze", history, graph.integers(1)), of_position)
        bias = graph.constant("mlp_0_bias", weights["mlp.0.bias"])
        if self._request_offset:
            bias = graph.apply("Add", bias, self._request_offset)
        of_node = graph.apply("Gemm", vectors, graph.constant("mlp_0_of_node", first[:, -size:]), bias, transB=1)
        hidden = graph.apply("Gemm", attention, graph.apply("Squeeze", interest, graph.integers(1)), of_node, transA=1)
        for layer in range(len(weights["mlp.slopes"])):
            if layer > 0:
                hidden = self._linear(hidden, layer)
            if settings.network.normalisation == "layer":
                hidden = graph.apply(
                    "LayerNormalization",
                    hidden,
                    graph.constant(f"norm_{layer}_weight", weights[f"norm.{layer}.weight"]),
                    graph.constant(f"norm_{layer}_bias", weights[f"norm.{layer}.bias"]),
                    epsilon=LAYER_NORM_EPSILON,
                )
            hidden = self._prelu(hidden, weights["mlp.slopes"][layer])
        return graph.apply("Reshape", self._linear(hidden, len(weights["mlp.slopes"])), graph.integers(-1))

    def _history(self, level: int) -> str:
        """Vectors (positions, size) of the history's items as this level sees them."""
        graph, tree = self._graph, self._tree
        if self._vectors:
            return self._vectors
        size, leaves = int(tree.level_sizes[level]), graph.integers(tree.num_leaves)
        ancestors = graph.apply("Div", graph.apply("Mul", self._leaves, graph.integers(size)), leaves)
        return self._rows("node_table", graph.apply("Add", ancestors, self._offset(level)))

    def _rows(self, table: str, rows: str) -> str:
        return self._graph.rows(table, self._weights[table], rows)

    def _offset(self, level: int) -> str:
        return self._graph.integers(int(self._tree.level_offsets[level]))

    def _linear(self, values: str, layer: int) -> str:
        weight = self._graph.constant(f"mlp_{layer}_weight", self._weights[f"mlp.{layer}.weight"])
        bias = self._graph.constant(f"mlp_{layer}_bias", self._weights[f"mlp.{layer}.bias"])
        return self._graph.apply("Gemm", values, weight, bias, transB=1)

    def _prelu(self, values: str, slope: AnyArray) -> str:
        return self._graph.apply("LeakyRelu", values, alpha=float(np.asarray(slope).reshape(())))


def fold_normalisation(weights: Mapping[str, AnyArray], normalisation: str) -> dict[str, AnyArray]:
    """The same network with less to normalise; what requests add to its first layer follows.

    A batch norm is a scale and a shift of the layer before it, and vanishes. A layer norm first takes the mean over the
    outputs away, which the layer before it can do as well: runtimes compute the variance as mean of squares minus
    square of mean, which is exact only around a mean of 0.
    """
    folded = dict(weights)
    tables = {name: np.asarray(array, dtype=np.float64) for name, array in weights.items() if name in OFFSET_TABLES}
    for layer in range(len(weights["mlp.slopes"])):
        weight, bias = (np.asarray(weights[f"mlp.{layer}.{name}"], dtype=np.float64) for name in ("weight", "bias"))
        match normalisation:
            case "layer":
                weight, bias = weight - weight.mean(axis=0), bias - bias.mean()
                if layer == 0:
                    tables = {name: table - table.mean(axis=1, keepdims=True) for name, table in tables.items()}
            case "batch":
                spread = np.sqrt(weights[f"norm.{layer}.running_var"] + np.float64(BATCH_NORM_EPSILON))
                scale = weights[f"norm.{layer}.weight"] / spread
                weight = weight * scale[:, None]
                bias = (bias - weights[f"norm.{layer}.running_mean"]) * scale + weights[f"norm.{layer}.bias"]
                if layer == 0:
                    tables = {name: table * scale for name, table in tables.items()}
        folded[f"mlp.{layer}.weight"], folded[f"mlp.{layer}.bias"] = weight.astype(np.float32), bias.astype(np.float32)
    return folded | {name: table.astype(np.float32) for name, table in tables.items()}
