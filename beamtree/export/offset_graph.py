"""What features of users and contexts add to the vectors of the parts that read them, as ONNX operators for a batch.

user_entries      int64 (batch, any)      rows of the table of users' features that each request has
user_weights      float32 (batch, any)    what each of them counts, 0 for none
user_vectors      float32 (batch, size)   numbers of columns that hold vectors, where there are any
context_entries, context_weights, context_vectors    the same of the contexts

There are only those inputs whose features the model reads. All of them may be left out: then nothing is known.
"""

import json
from functools import reduce

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from beamtree.data.request_features import RequestFeatures
from beamtree.export.graph import GraphBuilder
from beamtree.native.offset_arrays import FeatureArrays, OffsetArrays
from beamtree.types import AnyArray


class OffsetGraph:
    """Adds the inputs and the sums to a graph, with one row where nothing is given. All parts share the inputs."""

    def __init__(self, graph: GraphBuilder) -> None:
        self._graph = graph
        self._inputs: dict[str, ValueInfoProto] = {}

    @property
    def inputs(self) -> list[ValueInfoProto]:
        """What the parts that were added read."""
        return list(self._inputs.values())

    def add(self, part: str, arrays: OffsetArrays, *, requests: str, width: int) -> str:
        """Offsets (batch, width) of a part by its tables; requests: the size of the batch (1,)."""
        graph = self._graph
        shape = graph.apply("Concat", requests, graph.integers(width), axis=0)
        pairs = (("user", arrays.user), ("context", arrays.context))
        vectors = [self._owner(part, name, tables) for name, tables in pairs if tables is not None]
        first, *others = (graph.apply("Expand", rows, shape) for rows in vectors)
        return reduce(lambda total, rows: graph.apply("Add", total, rows), others, first)

    def _owner(self, part: str, name: str, tables: FeatureArrays) -> str:
        """Vectors (batch or 1, width) of the features of users or of contexts."""
        graph = self._graph
        entries = self._input(f"{name}_entries", np.zeros((1, 1), dtype=np.int64), f"{name}_rows")
        weights = self._input(f"{name}_weights", np.zeros((1, 1), dtype=np.float32), f"{name}_rows")
        rows = graph.apply("Gather", graph.constant(f"{part}_{name}_embedding", tables.embedding), entries)
        weighed = graph.apply("Mul", rows, graph.apply("Unsqueeze", weights, graph.integers(2)))
        vectors = graph.apply("ReduceSum", weighed, graph.integers(1), keepdims=0)
        if tables.projection is None:
            return vectors
        size = len(tables.projection)
        given = self._input(f"{name}_vectors", np.zeros((1, size), dtype=np.float32), size)
        projected = graph.apply("MatMul", given, graph.constant(f"{part}_{name}_projection", tables.projection))
        return graph.apply("Add", vectors, projected)

    def _input(self, name: str, default: AnyArray, columns: str | int) -> str:
        """An optional input: a constant of the same name is its default."""
        kind = TensorProto.INT64 if default.dtype == np.int64 else TensorProto.FLOAT
        self._inputs[name] = helper.make_tensor_value_info(name, kind, [f"{name}_batch", columns])
        return self._graph.constant(name, default)


def feature_facts(read: RequestFeatures) -> dict[str, str]:
    """The columns of the inputs as JSON, for the metadata of the file."""
    return {"request_features": json.dumps(read.as_json())}
