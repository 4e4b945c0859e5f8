"""An ONNX graph in the making: operators are applied to names, constants become initializers."""

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from beamtree.types import AnyArray


class GraphBuilder:
    """Collects nodes and constants. A value is the name of what a node or a constant gives.

    constants: arrays by name, which may be memory-mapped; the writer of the file decides where their bytes go.
    nodes: in the order in which they were applied, which is an order in which they can run.
    """

    def __init__(self, prefix: str = "") -> None:
        self.constants: dict[str, AnyArray] = {}
        self.nodes: list[NodeProto] = []
        self._prefix = prefix
        self._parent: GraphBuilder | None = None

    def constant(self, name: str, array: npt.ArrayLike) -> str:
        """A named array; in a body it belongs to the graph around it. Naming the same array again is fine."""
        if self._parent is not None:
            return self._parent.constant(name, array)
        self.constants.setdefault(name, np.asarray(array))
        return name

    def integers(self, *values: int) -> str:
        """A small flat int64 constant, such as a shape or axes."""
        return self.constant("integers_" + "_".join(str(value) for value in values), np.array(values, dtype=np.int64))

    def rows(self, name: str, table: AnyArray, rows: str) -> str:
        """Rows (..., size) of a named table for numbers (...), float32 whatever the table is stored in."""
        vectors = self.apply("Gather", self.constant(name, table), rows)
        return vectors if table.dtype == np.float32 else self.apply("Cast", vectors, to=TensorProto.FLOAT)

    def apply(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """The only output of an operator, numbered where it is given no name."""
        output = name or self._fresh(operator)
        self.apply_named(operator, *inputs, outputs=[output], **attributes)
        return output

    def top(self, values: str, count: int, *, largest: bool = True) -> tuple[str, str]:
        """The best of flat values in order, equal ones by rising position, and their positions: both (count,)."""
        best, positions = self._fresh("TopK_values"), self._fresh("TopK_positions")
        self.apply_named("TopK", values, self.integers(count), outputs=[best, positions], largest=int(largest))
        return best, positions

    def apply_named(self, operator: str, *inputs: str, outputs: list[str], **attributes: Any) -> None:
        """An operator whose outputs have the given names."""
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=outputs[0], **attributes))

    def body(self, prefix: str) -> "GraphBuilder":
        """A builder for the body of a Scan, which may use every value and constant of this graph."""
        inner = GraphBuilder(prefix)
        inner._parent = self
        return inner

    def graph(self, name: str, *, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> GraphProto:
        """The nodes as a graph without its constants."""
        return helper.make_graph(self.nodes, name, inputs, outputs)

    def _fresh(self, operator: str) -> str:
        return f"{self._prefix}{operator}_{len(self.nodes)}"
