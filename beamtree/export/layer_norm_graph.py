"""Layer norm as ONNX operators."""

from beamtree.export.graph import GraphBuilder
from beamtree.model.normalisation import LAYER_NORM_EPSILON


def layer_norm(graph: GraphBuilder, rows: str, weight: str, bias: str) -> str:
    """Of rows (n, width). The mean is taken away first: runtimes subtract its square from the mean of squares."""
    centred = graph.apply("Sub", rows, graph.apply("ReduceMean", rows, axes=[1], keepdims=1))
    return graph.apply("LayerNormalization", centred, weight, bias, epsilon=LAYER_NORM_EPSILON)
