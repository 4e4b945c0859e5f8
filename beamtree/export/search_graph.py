"""Beam search over a trained model as ONNX operators: the levels unrolled, and a Scan over the requests.

One request at a time keeps what a level computes (positions * hidden, nodes) in the cache. The search is the one of
retrieval/beam.py: start at the first level that the beam cannot keep whole, keep the best nodes, go to their children.
Candidates are always in rising order, so that TopK, which prefers the lower index, breaks ties as the engine does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from beamtree.config import Config
from beamtree.export.attention_graph import AttentionGraph, fold_normalisation
from beamtree.export.graph import GraphBuilder
from beamtree.export.memory_graph import MemoryGraph
from beamtree.export.offset_graph import OffsetGraph
from beamtree.export.tower_graph import TowerGraph
from beamtree.model.memory import Memory
from beamtree.native.offset_arrays import OffsetArrays
from beamtree.retrieval.beam import first_searched_level
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, AnyArray

NEVER = float("-inf")
"""The score of what must not be chosen."""


@dataclass(frozen=True)
class SearchPlan:
    """The constants of an exported search: the model, its tree, k and the beam width."""

    attention: Mapping[str, AnyArray] | None
    tower: Mapping[str, AnyArray] | None
    memory: Memory | None
    tree: ItemTree
    config: Config
    k: int
    beam_width: int

    @property
    def width(self) -> int:
        """Nodes kept per level: a beam is at least k wide."""
        return max(self.beam_width, self.k)

    @property
    def tower_width(self) -> int:
        """Size of a node's vector in the tower, 0 without one."""
        return 0 if self.tower is None else int(self.tower["node_table"].shape[1])

    @cached_property
    def folded_attention(self) -> Mapping[str, AnyArray] | None:
        """The attention network with less to normalise."""
        normalisation = self.config.model.network.normalisation
        return None if self.attention is None else fold_normalisation(self.attention, normalisation)

    @cached_property
    def offsets(self) -> dict[str, tuple[OffsetArrays, int]]:
        """The tables of features of users and contexts, and the width of their rows, of each part that reads any."""
        found = {}
        layer_width = self.config.model.layers[0]
        for part, arrays, width in (
            ("tower", self.tower, self.tower_width),
            ("attention", self.folded_attention, layer_width),
        ):
            tables = None if arrays is None else OffsetArrays.of(arrays, width=width)
            if tables is not None:
                found[part] = tables, width
        return found

    @property
    def first_level(self) -> int:
        """Where the search starts; with no more items than the beam is wide, all leaves are scored."""
        if self.tree.num_present <= self.width:
            return self.tree.height
        return first_searched_level(self.tree, beam_width=self.width)


def add_search(graph: GraphBuilder, plan: SearchPlan) -> list[ValueInfoProto]:
    """Add `items` int64 and `scores` float32, both (batch, k), for `history` (batch, any) and `length` (batch,).

    Gives the inputs for features of users and contexts, none where no part reads any.
    """
    positions = _known_positions(graph, plan)
    body = graph.body("search_")
    names = {part: f"{part}_offset" for part in plan.offsets}
    scanned = [helper.make_tensor_value_info("request_history", TensorProto.INT64, ["entries"])]
    for part, (_, width) in plan.offsets.items():
        scanned.append(helper.make_tensor_value_info(names[part], TensorProto.FLOAT, [width]))
    items, scores = _Search(body, plan, offsets=names).run("request_history")
    scan = helper.make_graph(
        body.nodes,
        "search",
        scanned,
        [
            helper.make_tensor_value_info(items, TensorProto.INT64, [plan.k]),
            helper.make_tensor_value_info(scores, TensorProto.FLOAT, [plan.k]),
        ],
    )
    # A Scan wants at least one request, so an empty batch gets one more, which is cut off again.
    requests = graph.apply("Shape", positions, end=1)
    lacking = graph.apply("Max", graph.apply("Sub", graph.integers(1), requests), graph.integers(0))
    room = graph.apply("Concat", graph.integers(0, 0), lacking, graph.integers(0), axis=0)
    padded = [graph.apply("Pad", positions, room, graph.constant("none", np.int64(NOTHING)))]
    told = OffsetGraph(graph)
    for part, (tables, width) in plan.offsets.items():
        offsets = told.add(part, tables, requests=requests, width=width)
        padded.append(graph.apply("Pad", offsets, room, graph.constant("no_offset", np.float32(0.0))))
    outputs = ["found_items", "found_scores"]
    graph.apply_named("Scan", *padded, outputs=outputs, body=scan, num_scan_inputs=len(padded))
    for found, name in (("found_items", "items"), ("found_scores", "scores")):
        graph.apply("Slice", found, graph.integers(0), requests, graph.integers(0), name=name)
    return told.inputs


def _known_positions(graph: GraphBuilder, plan: SearchPlan) -> str:
    """The first `length` entries of each row of `history`, moved to its end: -1 in front and for unknown ids.

    A column of -1 before the history is what every position in front of it reads.
    """
    column = graph.apply("Pad", "history", graph.integers(0, 1, 0, 0), graph.constant("none", np.int64(NOTHING)))
    available = graph.apply("Gather", graph.apply("Shape", "history"), graph.constant("one", np.int64(1)))
    end = graph.apply("Clip", "length", graph.constant("zero", np.int64(0)), available)
    one = graph.constant("one", np.int64(1))
    offsets = graph.apply("Range", graph.apply("Sub", one, available), one, one)
    index = graph.apply("Add", graph.apply("Unsqueeze", end, graph.integers(1)), offsets)
    latest = graph.apply("GatherElements", column, graph.apply("Max", index, graph.integers(0)), axis=1)
    is_known = graph.apply(
        "And",
        graph.apply("GreaterOrEqual", latest, graph.integers(0)),
        graph.apply("Less", latest, graph.integers(plan.tree.num_items)),
    )
    return graph.apply("Where", is_known, latest, graph.integers(NOTHING))


class _Search:
    """The search for one request inside the Scan. offsets: by part, what the request adds to a vector of that part."""

    def __init__(self, graph: GraphBuilder, plan: SearchPlan, *, offsets: Mapping[str, str]) -> None:
        self._graph = graph
        self._plan = plan
        self._tree = plan.tree
        model = plan.config.model
        everywhere = range(plan.tree.height + 1)
        self._parts: list[tuple[AttentionGraph | TowerGraph | MemoryGraph, range]] = []
        if plan.folded_attention is not None:
            attention = AttentionGraph(
                graph, plan.folded_attention, tree=plan.tree, settings=model, offset=offsets.get("attention", "")
            )
            self._parts.append((attention, model.attention_range(plan.tree.height)))
        if plan.tower is not None:
            tower = TowerGraph(graph, plan.tower, tree=plan.tree, offset=offsets.get("tower", ""))
            self._parts.append((tower, everywhere))
        if plan.memory is not None:
            self._parts.append((MemoryGraph(graph, plan.memory, tree=plan.tree), everywhere))

    def run(self, history: str) -> tuple[str, str]:
        graph, plan, tree = self._graph, self._plan, self._tree
        is_item = graph.apply("GreaterOrEqual", history, graph.integers(0))
        known = graph.apply("Compress", history, is_item, axis=0)
        for part, _ in self._parts:
            part.read_history(known)
        level = plan.first_level
        occupied = np.flatnonzero(tree.occupied(level))
        nodes, count = graph.constant("first_nodes", occupied), occupied.size
        scores = self._score(nodes, level)
        while level < tree.height:
            width = min(plan.width, count)
            _, kept = graph.top(scores, width)
            rising, _ = graph.top(graph.apply("Gather", nodes, kept), width, largest=False)
            nodes, is_child = self._children(rising, level)
            level, count = level + 1, width * tree.branching
            scores = self._score(nodes, level)
            if is_child:
                scores = graph.apply("Where", is_child, scores, graph.constant("nothing", np.float32(NEVER)))
            if tree.num_present < tree.num_leaves:
                scores = self._hide_vacant(scores, nodes, level)
        return self._best_items(nodes, scores, count=count)

    def _score(self, nodes: str, level: int) -> str:
        """The sum (n,) of the parts that score this level, 0 where there is none."""
        graph = self._graph
        found = [part.score(nodes, level) for part, levels in self._parts if level in levels]
        if not found:
            return graph.apply("Cast", graph.apply("Mul", nodes, graph.integers(0)), to=TensorProto.FLOAT)
        return reduce(lambda total, scores: graph.apply("Add", total, scores), found)

    def _children(self, nodes: str, level: int) -> tuple[str, str]:
        """Children (nodes * branching,) of rising nodes, rising, and which of them exist ("" where all do)."""
        graph, tree = self._graph, self._tree
        column = graph.apply("Unsqueeze", nodes, graph.integers(1))
        offsets = graph.constant("child_offsets", np.arange(tree.branching))
        if level < tree.height - 1:
            children = graph.apply("Add", graph.apply("Mul", column, graph.integers(tree.branching)), offsets)
            return graph.apply("Reshape", children, graph.integers(-1)), ""
        size, leaves = int(tree.level_sizes[level]), graph.integers(tree.num_leaves)

        def first_leaf(node: str) -> str:
            rounded_up = graph.apply("Add", graph.apply("Mul", node, leaves), graph.integers(size - 1))
            return graph.apply("Div", rounded_up, graph.integers(size))

        children = graph.apply("Add", first_leaf(column), offsets)
        end = first_leaf(graph.apply("Add", column, graph.integers(1)))
        is_child = graph.apply("Reshape", graph.apply("Less", children, end), graph.integers(-1))
        inside = graph.apply("Min", children, graph.integers(tree.num_leaves - 1))
        return graph.apply("Reshape", inside, graph.integers(-1)), is_child

    def _hide_vacant(self, scores: str, nodes: str, level: int) -> str:
        graph = self._graph
        occupied = graph.constant(f"occupied_{level}", self._tree.occupied(level))
        return graph.apply(
            "Where", graph.apply("Gather", occupied, nodes), scores, graph.constant("nothing", np.float32(NEVER))
        )

    def _best_items(self, leaves: str, scores: str, *, count: int) -> tuple[str, str]:
        graph, k = self._graph, self._plan.k
        found = min(k, count)
        best_scores, best = graph.top(scores, found)
        item_at_leaf = graph.constant("item_at_leaf", self._tree.item_at_leaf)
        items = graph.apply("Gather", item_at_leaf, graph.apply("Gather", leaves, best))
        is_missing = graph.apply("IsInf", best_scores)
        items = graph.apply(
            "Where", is_missing, graph.integers(NOTHING), graph.apply("Cast", items, to=TensorProto.INT64)
        )
        if found < k:
            room = graph.integers(0, k - found)
            items = graph.apply("Pad", items, room, graph.constant("none", np.int64(NOTHING)))
            best_scores = graph.apply("Pad", best_scores, room, graph.constant("nothing", np.float32(NEVER)))
        return items, best_scores
