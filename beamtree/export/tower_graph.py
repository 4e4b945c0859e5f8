"""The tower as ONNX operators, for one request: the history encoded once, then an inner product per node."""

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from beamtree.export.graph import GraphBuilder
from beamtree.export.history_graph import latest_items
from beamtree.export.recurrent_graph import RecurrentGraph
from beamtree.export.self_attention_graph import SelfAttentionGraph
from beamtree.native.encoder_arrays import RecurrentSizes, encoder_sizes
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray


class TowerGraph:
    """Adds the encoder and its inner products to a graph. `read_history` comes first, then `score` for any level.

    weights: arrays by name within the part, as `model/tower.py` names them. offset: (width,), what the request adds to
    its encoded history; "" where nothing is read beside it.
    """

    def __init__(self, graph: GraphBuilder, weights: Mapping[str, AnyArray], *, tree: ItemTree, offset: str) -> None:
        self._graph = graph
        self._weights = weights
        self._tree = tree
        self._offset = offset
        self._sizes = encoder_sizes(weights, width=weights["node_table"].shape[1])
        self._encoder: RecurrentGraph | SelfAttentionGraph
        if isinstance(self._sizes, RecurrentSizes):
            self._encoder = RecurrentGraph(graph, weights, self._sizes)
        else:
            self._encoder = SelfAttentionGraph(graph, weights, self._sizes)
        self._encoded = ""

    def read_history(self, history: str) -> None:
        """Encode the latest items of a history (entries,), oldest first, -1 for none."""
        graph, tree = self._graph, self._tree
        items, present = latest_items(graph, history, length=self._sizes.history_length)
        leaves = graph.apply("Gather", graph.constant("leaf_of_item", tree.leaf_of_item), items)
        vectors = self._rows(graph.apply("Cast", leaves, to=TensorProto.INT64), tree.height)
        weight = graph.constant("tower_weight", np.asarray(self._weights["weight"], dtype=np.float32))
        encoded = self._encoder.encode(vectors, present)
        if self._offset:
            flat = graph.apply("Reshape", encoded, graph.integers(self._sizes.width))
            encoded = graph.apply("Add", flat, self._offset)
        encoded = graph.apply("Mul", encoded, weight)
        self._encoded = graph.apply("Reshape", encoded, graph.integers(self._sizes.width, 1))

    def score(self, nodes: str, level: int) -> str:
        """Scores (n,) of nodes (n,) of a level."""
        product = self._graph.apply("MatMul", self._rows(nodes, level), self._encoded)
        return self._graph.apply("Reshape", product, self._graph.integers(-1))

    def _rows(self, nodes: str, level: int) -> str:
        rows = self._graph.apply("Add", nodes, self._graph.integers(int(self._tree.level_offsets[level])))
        return self._graph.rows("tower_node_table", self._weights["node_table"], rows)
