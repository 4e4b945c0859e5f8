"""GRU4Rec's encoder as ONNX operators, for one history."""

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from beamtree.export.graph import GraphBuilder
from beamtree.export.layer_norm_graph import layer_norm
from beamtree.native.encoder_arrays import GATES, RecurrentSizes
from beamtree.types import AnyArray

UPDATE_RESET_NEW = (1, 0, 2)
"""The gates in the order of ONNX, by their places in ours."""


class RecurrentGraph:
    """Adds the encoder to a graph. weights: arrays by name, as `model/recurrent.py` names them."""

    def __init__(self, graph: GraphBuilder, weights: Mapping[str, AnyArray], sizes: RecurrentSizes) -> None:
        self._graph = graph
        self._weights = weights
        self._sizes = sizes

    def encode(self, vectors: str, present: str) -> str:
        """What comes after a history, (1, width), from vectors (positions, width); present: (positions,)."""
        graph = self._graph
        # Absent items are left out. A row that is not read stands at the end: there is one, even if all are absent.
        nothing = graph.constant("tower_nothing", np.zeros((1, self._sizes.width), dtype=np.float32))
        items = graph.apply("Compress", vectors, present, axis=0)
        read = self._normalised(graph.apply("Concat", items, nothing, axis=0), "input_norm")
        ones = graph.apply("Cast", present, to=TensorProto.INT32)
        count = graph.apply("ReduceSum", ones, graph.integers(0), keepdims=1)
        at_least_one = graph.apply("Max", count, graph.constant("tower_one", np.array([1], dtype=np.int32)))
        rows = graph.apply("Unsqueeze", read, graph.integers(1))  # (positions, histories, width)
        for layer in range(self._sizes.layers):
            every, last = f"tower_states_{layer}", f"tower_state_{layer}"
            graph.apply_named(
                "GRU",
                rows,
                self._gates(f"weight_ih_l{layer}"),
                self._gates(f"weight_hh_l{layer}"),
                self._biases(layer),
                at_least_one,
                outputs=[every, last],
                hidden_size=self._sizes.hidden,
                linear_before_reset=1,
            )
            rows = graph.apply("Squeeze", every, graph.integers(1))
        state = graph.apply("Squeeze", f"tower_state_{self._sizes.layers - 1}", graph.integers(0))
        is_any = graph.apply("Cast", graph.apply("Min", count, at_least_one), to=TensorProto.BOOL)
        empty = graph.constant("tower_empty", np.zeros((1, self._sizes.hidden), dtype=np.float32))
        known = graph.apply("Where", is_any, state, empty)
        step = graph.apply("Gemm", known, *self._linear("project"), transB=1)
        # The latest item is the last one behind that of nothing.
        behind = graph.apply("Concat", nothing, items, axis=0)
        latest = graph.apply("Slice", behind, graph.integers(-1), graph.integers(2**31))
        return self._normalised(graph.apply("Add", latest, step), "final_norm")

    def _normalised(self, rows: str, name: str) -> str:
        return layer_norm(self._graph, rows, *self._linear(name))

    def _linear(self, name: str) -> tuple[str, str]:
        """Weight and bias."""
        weight, bias = (
            self._graph.constant(f"tower_{name}_{kind}", self._array(f"{name}.{kind}")) for kind in ("weight", "bias")
        )
        return weight, bias

    def _gates(self, name: str) -> str:
        """A matrix of all gates in the layout of ONNX, (1, gates, inputs)."""
        return self._graph.constant(f"tower_{name}", _reordered(self._array(f"gru.{name}"))[None])

    def _biases(self, layer: int) -> str:
        """Those of the inputs, then those of the state, (1, 2 gates)."""
        both = [_reordered(self._array(f"gru.bias_{kind}_l{layer}")) for kind in ("ih", "hh")]
        return self._graph.constant(f"tower_biases_{layer}", np.concatenate(both)[None])

    def _array(self, name: str) -> AnyArray:
        return np.asarray(self._weights[f"encoder.{name}"], dtype=np.float32)


def _reordered(gates: AnyArray) -> AnyArray:
    """(gates * hidden, ...) with the gates in the order of ONNX."""
    by_gate = gates.reshape(GATES, -1, *gates.shape[1:])
    return by_gate[list(UPDATE_RESET_NEW)].reshape(gates.shape)
