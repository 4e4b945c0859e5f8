"""SASRec's encoder as ONNX operators, for one history."""

import math
from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from beamtree.export.graph import GraphBuilder
from beamtree.export.layer_norm_graph import layer_norm
from beamtree.native.encoder_arrays import SelfAttentionSizes
from beamtree.types import AnyArray


class SelfAttentionGraph:
    """Adds the encoder to a graph. weights: arrays by name, as `model/self_attention.py` names them."""

    def __init__(self, graph: GraphBuilder, weights: Mapping[str, AnyArray], sizes: SelfAttentionSizes) -> None:
        self._graph = graph
        self._weights = weights
        self._width, self._heads, self._length = sizes.width, sizes.heads, sizes.history_length
        self._layers = sizes.layers

    def encode(self, vectors: str, present: str) -> str:
        """What comes after a history, (1, width), from vectors (positions, width); present: (positions,)."""
        graph = self._graph
        column = graph.apply("Cast", graph.apply("Unsqueeze", present, graph.integers(1)), to=TensorProto.FLOAT)
        hidden = graph.apply("Mul", vectors, column)
        for layer in range(self._layers - 1):
            hidden = self._block(hidden, f"layers.{layer}", present=present, last=self._length)
        # Of the last block only the latest position is asked.
        hidden = self._block(hidden, f"layers.{self._layers - 1}", present=present, last=1)
        return self._normalised(hidden, "final_norm")

    def _block(self, hidden: str, name: str, *, present: str, last: int) -> str:
        """The `last` rows (last, width) of a block over hidden (positions, width); present: (positions,)."""
        graph, attention = self._graph, f"{name}.queries_keys_values"
        normalised = self._normalised(hidden, f"{name}.attention_norm")
        asked, asking = (self._latest(rows, last) for rows in (hidden, normalised))
        scale = (self._width // self._heads) ** -0.5
        queries = self._heads_of(self._linear(asking, attention, third=0, scale=scale), axes=[1, 0, 2])
        keys = self._heads_of(self._linear(normalised, attention, third=1), axes=[1, 2, 0])
        values = self._heads_of(self._linear(normalised, attention, third=2), axes=[1, 0, 2])
        logits = graph.apply("Add", graph.apply("MatMul", queries, keys), self._added(name, present=present, last=last))
        shares = graph.apply("Softmax", logits, axis=-1)
        attended = graph.apply("Transpose", graph.apply("MatMul", shares, values), perm=[1, 0, 2])
        flat = graph.apply("Reshape", attended, graph.integers(-1, self._width))
        hidden = graph.apply("Add", asked, self._linear(flat, f"{name}.merge"))
        widened = self._linear(self._normalised(hidden, f"{name}.network_norm"), f"{name}.widen")
        return graph.apply("Add", hidden, self._linear(self._gelu(widened), f"{name}.narrow"))

    def _heads_of(self, rows: str, *, axes: list[int]) -> str:
        """Rows (n, width) by head: (n, heads, size of a head), with its axes in another order."""
        by_head = self._graph.apply("Reshape", rows, self._graph.integers(-1, self._heads, self._width // self._heads))
        return self._graph.apply("Transpose", by_head, perm=axes)

    def _latest(self, rows: str, last: int) -> str:
        """The `last` of rows (positions, ...)."""
        if last == self._length:
            return rows
        return self._graph.apply("Slice", rows, self._graph.integers(-last), self._graph.integers(2**31))

    def _added(self, name: str, *, present: str, last: int) -> str:
        """What is added to a block's attention (heads, last, positions).

        By how many places before it is, where a row looks at itself or at an earlier item; -inf elsewhere.
        """
        graph, place = self._graph, np.arange(self._length)
        age = (place[:, None] - place)[-last:]
        by_age = np.where(age >= 0, self._array(f"{name}.recency")[:, np.maximum(age, 0)], np.float32(-math.inf))
        visible = graph.apply("Or", present, graph.constant(f"tower_itself_{last}", age == 0))
        by_place = graph.constant(f"tower_{name}.recency", by_age)
        return graph.apply("Where", visible, by_place, self._number("hidden", -math.inf))

    def _normalised(self, rows: str, name: str) -> str:
        return layer_norm(self._graph, rows, *(self._constant(f"{name}.{kind}") for kind in ("weight", "bias")))

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

    def _array(self, name: str) -> AnyArray:
        return np.asarray(self._weights[f"encoder.{name}"], dtype=np.float32)

    def _constant(self, name: str) -> str:
        return self._graph.constant(f"tower_{name}", self._array(name))

    def _number(self, name: str, value: float) -> str:
        return self._graph.constant(f"tower_number_{name}", np.float32(value))
