"""Counted memory as ONNX operators, for one request: a sum over the leaves, and its maximum below every node.

The graph keeps a number for every leaf, where the kernels keep a list of those that are pointed to: the same evidence,
in time that grows with the catalogue.
"""

import numpy as np
from onnx import TensorProto

from beamtree.export.graph import GraphBuilder
from beamtree.model.memory import POPULAR_ITEMS, AskedLinks, Memory
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING


class MemoryGraph:
    """Adds the evidence to a graph. `read_history` comes first, then `score` for any level."""

    def __init__(self, graph: GraphBuilder, memory: Memory, *, tree: ItemTree) -> None:
        self._graph = graph
        self._memory = memory
        self._tree = tree
        self._pooled: dict[int, str] = {}

    def read_history(self, history: str) -> None:
        """Look at a whole history (entries,) of items, oldest first, -1 for none."""
        graph, memory, tree = self._graph, self._memory, self._tree
        leaf_of_item = graph.constant("leaf_of_item", tree.leaf_of_item)
        evidence = graph.constant("no_evidence", np.zeros(tree.num_leaves, dtype=np.float32))
        for number, kind in enumerate(memory.kinds):
            pointed_to = self._pointed_to(kind, f"links_{number}", history, leaf_of_item)
            evidence = graph.apply("Add", evidence, pointed_to)
        if memory.weights.repeats != 0.0:
            evidence = graph.apply("Add", evidence, self._repeated(history, leaf_of_item))
        if tree.removed.size:
            is_present = graph.constant("present_leaves", tree.occupied(tree.height))
            evidence = graph.apply("Where", is_present, evidence, self._number(0.0))
        if memory.has_demand:
            is_met = graph.apply("Greater", evidence, self._number(0.0))
            popular = graph.apply("Where", is_met, *self._popularity())
            evidence = graph.apply("Add", evidence, popular)
        self._pooled = {tree.height: evidence}

    def score(self, nodes: str, level: int) -> str:
        """The gated evidence (n,) of nodes (n,) of a level."""
        gate = self._memory.gates[level] if self._memory.gates else 1.0
        return self._graph.apply("Mul", self._graph.apply("Gather", self._pool(level), nodes), self._number(gate))

    def _pointed_to(self, kind: AskedLinks, name: str, history: str, leaf_of_item: str) -> str:
        """What the latest items point to (leaves,): fixed stretches of the lists, masked where a list is shorter."""
        graph, links = self._graph, kind.links
        latest = graph.apply("Slice", history, graph.integers(-kind.depth), graph.integers(2**31))
        sources = graph.apply("Max", latest, graph.integers(0))
        longest = int(np.diff(links.offsets).max(initial=0))
        offsets = graph.constant(f"{name}_offsets", links.offsets)
        first = graph.apply("Unsqueeze", graph.apply("Gather", offsets, sources), graph.integers(1))
        after = graph.apply("Gather", offsets, graph.apply("Add", sources, graph.integers(1)))
        places = graph.apply("Add", first, graph.constant(f"{name}_places", np.arange(max(longest, 1))))
        is_link = graph.apply("Less", places, graph.apply("Unsqueeze", after, graph.integers(1)))
        places = graph.apply("Min", places, graph.integers(max(len(links.items) - 1, 0)))
        items, strengths = (links.items, links.strengths) if len(links.items) else (np.zeros(1, np.int32), np.zeros(1))
        targets = graph.apply("Gather", graph.constant(f"{name}_items", items), places)
        strength = graph.apply("Gather", graph.constant(f"{name}_strengths", strengths), places)
        strength = graph.apply("Cast", strength, to=TensorProto.FLOAT)
        faded = graph.apply("Mul", self._faded(latest, kind.fade), self._number(kind.weight))
        if kind.distinct:
            faded = graph.apply("Where", self._comes_again(latest), self._number(0.0), faded)
        value = graph.apply("Mul", strength, graph.apply("Unsqueeze", faded, graph.integers(1)))
        value = graph.apply("Where", is_link, value, self._number(0.0))
        return self._add_up(graph.apply("Gather", leaf_of_item, targets), value)

    def _comes_again(self, history: str) -> str:
        """Whether each entry (entries,) stands once more behind its place."""
        graph = self._graph
        length = graph.apply("Squeeze", graph.apply("Shape", history))
        zero, one = graph.constant("zero", np.int64(0)), graph.constant("one", np.int64(1))
        places = graph.apply("Range", zero, length, one)
        is_later = graph.apply(
            "Less",
            graph.apply("Unsqueeze", places, graph.integers(1)),
            graph.apply("Unsqueeze", places, graph.integers(0)),
        )
        is_same = graph.apply(
            "Equal",
            graph.apply("Unsqueeze", history, graph.integers(1)),
            graph.apply("Unsqueeze", history, graph.integers(0)),
        )
        again = graph.apply("Cast", graph.apply("And", is_later, is_same), to=TensorProto.FLOAT)
        return graph.apply("Greater", graph.apply("ReduceMax", again, axes=[1], keepdims=0), self._number(0.0))

    def _repeated(self, history: str, leaf_of_item: str) -> str:
        """Repeat evidence (leaves,): for the items of the history themselves."""
        graph, memory = self._graph, self._memory
        leaves = graph.apply("Gather", leaf_of_item, graph.apply("Max", history, graph.integers(0)))
        sums = self._add_up(leaves, self._faded(history, memory.weights.repeat_fade))
        logarithms = graph.apply("Log", graph.apply("Add", sums, self._number(1.0)))
        of_leaf = np.zeros(self._tree.num_leaves, dtype=np.float32)
        of_leaf[self._tree.leaf_of_item] = memory.weights.repeats * memory.returns
        return graph.apply("Mul", logarithms, graph.constant("returns", of_leaf))

    def _popularity(self) -> tuple[str, str]:
        """What popularity and trend add to each leaf (leaves,): to one that is pointed to, and to one that is not."""
        graph, memory, tree = self._graph, self._memory, self._tree
        of_leaf = np.zeros(tree.num_leaves, dtype=np.float32)
        of_leaf[tree.leaf_of_item] = memory.demand
        on_their_own = np.zeros_like(of_leaf)
        most_popular = tree.leaf_of_item[memory.most_demanded]
        on_their_own_leaves = most_popular[tree.item_at_leaf[most_popular] != NOTHING][:POPULAR_ITEMS]
        on_their_own[on_their_own_leaves] = of_leaf[on_their_own_leaves]
        return graph.constant("popularity", of_leaf), graph.constant("popularity_alone", on_their_own)

    def _faded(self, history: str, fade: float) -> str:
        """fade^age of each entry (entries,), the last having age 0; 0 where there is no item."""
        graph = self._graph
        length = graph.apply("Squeeze", graph.apply("Shape", history))
        ages = graph.apply(
            "Range",
            graph.apply("Sub", length, graph.constant("one", np.int64(1))),
            graph.constant("minus_one", np.int64(-1)),
            graph.constant("minus_one", np.int64(-1)),
        )
        powers = graph.apply("Pow", self._number(fade), graph.apply("Cast", ages, to=TensorProto.FLOAT))
        is_item = graph.apply("GreaterOrEqual", history, graph.integers(0))
        return graph.apply("Where", is_item, powers, self._number(0.0))

    def _add_up(self, leaves: str, values: str) -> str:
        """Sums (leaves,) of values of any shape by their leaves of the same shape."""
        graph = self._graph
        index = graph.apply("Cast", graph.apply("Reshape", leaves, graph.integers(-1)), to=TensorProto.INT64)
        nothing = graph.constant("no_evidence", np.zeros(self._tree.num_leaves, dtype=np.float32))
        flat = graph.apply("Reshape", values, graph.integers(-1))
        return graph.apply("ScatterElements", nothing, index, flat, axis=0, reduction="add")

    def _pool(self, level: int) -> str:
        """The largest evidence below each node of a level (nodes,)."""
        if level in self._pooled:
            return self._pooled[level]
        graph, tree = self._graph, self._tree
        below = self._pool(level + 1)
        first, end = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
        children = np.minimum(first[:, None] + np.arange(tree.branching), end[:, None] - 1)
        if level + 1 < tree.height:
            by_parent = graph.apply("Reshape", below, graph.integers(-1, tree.branching))
        else:
            by_parent = graph.apply("Gather", below, graph.constant("leaves_of_nodes", children))
        largest = graph.apply("ReduceMax", by_parent, axes=[1], keepdims=0)
        self._pooled[level] = graph.apply("Max", largest, self._number(0.0))
        return self._pooled[level]

    def _number(self, value: float) -> str:
        return self._graph.constant(f"number_{float(np.float32(value)).hex()}", np.float32(value))
