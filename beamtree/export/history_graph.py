"""The latest items of a history as ONNX operators: what the networks of a score read."""

import numpy as np

from beamtree.export.graph import GraphBuilder
from beamtree.types import NOTHING


def latest_items(graph: GraphBuilder, history: str, *, length: int) -> tuple[str, str]:
    """The last items (length,) of a history (entries,), oldest first, and whether there is one (length,).

    A history of fewer is padded in front. Entries of -1 are none, and read as item 0.
    """
    padding = graph.constant(f"padding_{length}", np.full(length, NOTHING, dtype=np.int64))
    padded = graph.apply("Concat", padding, history, axis=0)
    latest = graph.apply("Slice", padded, graph.integers(-length), graph.integers(2**31))
    present = graph.apply("GreaterOrEqual", latest, graph.integers(0))
    return graph.apply("Max", latest, graph.integers(0)), present
