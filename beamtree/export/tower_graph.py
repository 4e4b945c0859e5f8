"""The tower as ONNX operators, for one request: the history encoded once, then an inner product per node."""

import math
from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from beamtree.export.graph import AnyArray, GraphBuilder
from beamtree.export.history_graph import latest_items
from beamtree.model.normalisation import LAYER_NORM_EPSILON
from beamtree.tree.item_tree import ItemTree


class TowerGraph:
    """Adds the encoder and its inner products to a graph. `read_history` comes first, then `score` for any level.

    weights: arrays by name within the part, as `model/tower.py` names them; heads: of the encoder's attention.
    """

    def __init__(self, graph: GraphBuilder, weights: Mapping[str, AnyArray], *, tree: ItemTree, heads: int) -> None:
        self._graph = graph
        self._weights = weights
        self._tree = tree
        self._heads = heads
        self._length, self._width = weights["encoder.positions"].shape
        self._layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.layers.")})
        self._encoded = ""

    def read_history(self, history: str) -> None:
        """Encode the latest items of a history (entries,), oldest first, -1 for none."""
        graph, tree = self._graph, self._tree
        items, present = latest_items(graph, history, length=self._length)
        leaves = graph.apply("Gather", graph.constant("leaf_of_item", tree.leaf_of_item), items)
        vectors = self._rows(graph.apply("Cast", leaves, to=TensorProto.INT64), tree.height)
        column = graph.apply("Cast", graph.apply("Unsqueeze", present, graph.integers(1)), to=TensorProto.FLOAT)
        hidden = graph.apply("Add", graph.apply("Mul", vectors, column), self._constant("positions"))
        mask = self._mask(present)
        for layer in range(self._layers - 1):
            hidden = self._block(hidden, f"layers.{layer}", asked=hidden, mask=mask)
        # Of the last block only the latest position is asked.
        asked, mask = (graph.apply("Slice", rows, graph.integers(-1), graph.integers(2**31)) for rows in (hidden, mask))
        hidden = self._block(hidden, f"layers.{self._layers - 1}", asked=asked, mask=mask)
        weight = graph.constant("tower_weight", np.asarray(self._weights["weight"], dtype=np.float32))
        encoded = graph.apply("Mul", self._normalise(hidden, "final_norm"), weight)
        self._encoded = graph.apply("Reshape", encoded, graph.integers(self._width, 1))

    def score(self, nodes: str, level: int) -> str:
        """Scores (n,) of nodes (n,) of a level."""
        product = self._graph.apply("MatMul", self._rows(nodes, level), self._encoded)
        return self._graph.apply("Reshape", product, self._graph.integers(-1))

    def _block(self, hidden: str, name: str, *, asked: str, mask: str) -> str:
        """A block's output (asked, width): `asked` are those rows of hidden (positions, width) that it computes.

        mask: (asked, positions), 0 where a row sees a position, -inf elsewhere.
        """
        graph, attention = self._graph, f"{name}.queries_keys_values"
        normalised = self._normalise(hidden, f"{name}.attention_norm")
        asking = normalised if asked == hidden else self._normalise(asked, f"{name}.attention_norm")
        scale = (self._width // self._heads) ** -0.5
        queries = self._heads_of(self._linear(asking, attention, third=0, scale=scale), axes=[1, 0, 2])
        keys = self._heads_of(self._linear(normalised, attention, third=1), axes=[1, 2, 0])
        values = self._heads_of(self._linear(normalised, attention, third=2), axes=[1, 0, 2])
        shares = graph.apply("Softmax", graph.apply("Add", graph.apply("MatMul", queries, keys), mask), axis=-1)
        attended = graph.apply("Transpose", graph.apply("MatMul", shares, values), perm=[1, 0, 2])
        flat = graph.apply("Reshape", attended, graph.integers(-1, self._width))
        hidden = graph.apply("Add", asked, self._linear(flat, f"{name}.merge"))
        widened = self._linear(self._normalise(hidden, f"{name}.network_norm"), f"{name}.widen")
        return graph.apply("Add", hidden, self._linear(self._gelu(widened), f"{name}.narrow"))

    def _heads_of(self, rows: str, *, axes: list[int]) -> str:
        """Rows (n, width) by head: (n, heads, size of a head), with its axes in another order."""
        by_head = self._graph.apply("Reshape", rows, self._graph.integers(-1, self._heads, self._width // self._heads))
        return self._graph.apply("Transpose", by_head, perm=axes)

    def _mask(self, present: str) -> str:
        """What each position sees (positions, positions): itself and the items before it."""
        graph, size = self._graph, (self._length, self._length)
        causal = graph.constant("tower_causal", np.tri(*size, dtype=np.bool_))
        itself = graph.constant("tower_itself", np.eye(*size, dtype=np.bool_))
        visible = graph.apply("Or", graph.apply("And", causal, present), itself)
        return graph.apply("Where", visible, self._number("zero", 0.0), self._number("hidden", -math.inf))

    def _normalise(self, rows: str, name: str) -> str:
        """Layer norm; the mean is taken away first, because runtimes subtract its square from the mean of squares."""
        graph = self._graph
        centred = graph.apply("Sub", rows, graph.apply("ReduceMean", rows, axes=[1], keepdims=1))
        weight, bias = self._constant(f"{name}.weight"), self._constant(f"{name}.bias")
        return graph.apply("LayerNormalization", centred, weight, bias, epsilon=LAYER_NORM_EPSILON)

    def _linear(self, rows: str, name: str, *, third: int | None = None, scale: float = 1.0) -> str:
        """Rows (n, inputs) through a linear layer, or through a third of its outputs, times a scale."""
        weight, bias = (self._array(f"{name}.{kind}") for kind in ("weight", "bias"))
        if third is not None:
            part = slice(third * self._width, (third + 1) * self._width)
            weight, bias, name = weight[part] * scale, bias[part] * scale, f"{name}_{third}"
        return self._graph.apply(
            "Gemm",
            rows,
            self._graph.constant(f"tower_{name}_weight", weight.astype(np.float32)),
            self._graph.constant(f"tower_{name}_bias", bias.astype(np.float32)),
            transB=1,
        )

    def _gelu(self, values: str) -> str:
        """x * (1 + erf(x / sqrt(2))) / 2, which is no operator of its own before opset 20."""
        graph = self._graph
        error = graph.apply("Erf", graph.apply("Mul", values, self._number("root", 0.5**0.5)))
        halved = graph.apply("Mul", values, self._number("half", 0.5))
        return graph.apply("Mul", halved, graph.apply("Add", error, self._number("one", 1.0)))

    def _rows(self, nodes: str, level: int) -> str:
        rows = self._graph.apply("Add", nodes, self._graph.integers(int(self._tree.level_offsets[level])))
        return self._graph.rows("tower_node_table", self._weights["node_table"], rows)

    def _array(self, name: str) -> AnyArray:
        return np.asarray(self._weights[f"encoder.{name}"], dtype=np.float32)

    def _constant(self, name: str) -> str:
        return self._graph.constant(f"tower_{name}", self._array(name))

    def _number(self, name: str, value: float) -> str:
        return self._graph.constant(f"tower_number_{name}", np.float32(value))
