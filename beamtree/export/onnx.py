"""A trained model as one ONNX file: weights, tree and the whole beam search, for any ONNX Runtime.

history  int64 (batch, any)    dense items, oldest first; -1 and numbers that are no item count as nothing
length   int64 (batch,)        how many entries of each row, from its start, are the history
items    int64 (batch, k)      dense items, best first, -1 where the catalogue has fewer than k
scores   float32 (batch, k)    falling, -inf there
ids      int64 or string (batch, k)    raw ids of the items, -1 or "" there

A model that reads features of users and contexts has more inputs, which may be left out: see `offset_graph`.
"""

from pathlib import Path

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from beamtree.artefact import Artefact
from beamtree.errors import ArtefactError, InputError
from beamtree.export.graph import GraphBuilder
from beamtree.export.offset_graph import feature_facts
from beamtree.export.onnx_file import EMBED_LIMIT, OnnxFiles, write_onnx
from beamtree.export.search_graph import SearchPlan, add_search
from beamtree.model.memory import Memory
from beamtree.retrieval.scorers import arrays_by_part
from beamtree.types import NOTHING, AnyArray

OPSET = 17
IR_VERSION = 8

GRAPH_PARTS = frozenset({"attention", "memory", "tower"})
"""The parts of a score that there are operators for."""


def export_onnx(
    artefact: Artefact,
    path: Path,
    *,
    k: int,
    beam_width: int | None = None,
    raw_ids: bool = True,
    embed_limit: int = EMBED_LIMIT,
) -> OnnxFiles:
    """Write a model and its search for k items; an earlier file stays whole until this one is complete.

    beam_width: the model's own setting by default. raw_ids: also give the items' raw ids.
    embed_limit: constants of more bytes than this go to a file beside it, called after its content.
    Raises InputError for a k or beam below 1 and for a score with parts that beamtree does not know, ArtefactError
    where the file cannot be written.
    """
    width = artefact.config.retrieval.beam_width if beam_width is None else beam_width
    if k < 1 or width < 1:
        raise InputError(f"Expected k and a beam of at least 1, got k {k} and a beam of {width}.")
    unknown = sorted(arrays_by_part(artefact.weights).keys() - GRAPH_PARTS)
    if unknown:
        raise InputError(
            f"Expected a score of {', '.join(sorted(GRAPH_PARTS))}, which the graph knows, got {', '.join(unknown)} "
            "beside them: the file would rank without. Fit without them, or search in Python."
        )
    memory = artefact.part("memory")
    plan = SearchPlan(
        artefact.part("attention") or None,
        artefact.part("tower") or None,
        Memory.from_arrays(memory) if memory else None,
        artefact.tree,
        config=artefact.config,
        k=k,
        beam_width=width,
    )
    graph = GraphBuilder()
    more_inputs = add_search(graph, plan)
    outputs = [_value("items", TensorProto.INT64, "batch", k), _value("scores", TensorProto.FLOAT, "batch", k)]
    if raw_ids:
        outputs.append(_value("ids", _add_raw_ids(graph, artefact), "batch", k))
    inputs = [_value("history", TensorProto.INT64, "batch", "entries"), _value("length", TensorProto.INT64, "batch")]
    model = helper.make_model(
        graph.graph("beamtree", inputs=[*inputs, *more_inputs], outputs=outputs),
        producer_name="beamtree",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    facts = _facts(artefact, plan) | (feature_facts(artefact.request_features) if more_inputs else {})
    helper.set_model_props(model, facts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_onnx(model, graph.constants, path=path, embed_limit=embed_limit)
    except OSError as error:
        raise ArtefactError(
            f"Could not write {path}: {error.strerror or error}. A file that was there before is untouched. "
            "Give the path of a file in a folder that is writable and has room."
        ) from error


def _add_raw_ids(graph: GraphBuilder, artefact: Artefact) -> int:
    """Add the value `ids`, and return its element type."""
    raw = artefact.items.ids
    of_item: AnyArray = raw.to_numpy()
    missing: AnyArray = np.array(NOTHING)
    kind = TensorProto.INT64
    if not artefact.items.holds_integers:
        of_item, missing, kind = of_item.astype(object), np.array([""], dtype=object), TensorProto.STRING
    found = graph.apply("Gather", graph.constant("raw_ids", of_item), graph.apply("Max", "items", graph.integers(0)))
    is_missing = graph.apply("Less", "items", graph.integers(0))
    graph.apply("Where", is_missing, graph.constant("missing_id", missing), found, name="ids")
    return kind


def _value(name: str, kind: int, *shape: str | int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _facts(artefact: Artefact, plan: SearchPlan) -> dict[str, str]:
    """The metadata of the file."""
    return {
        "beamtree_model": artefact.version,
        "k": str(plan.k),
        "beam_width": str(plan.width),
        "history_length": str(artefact.config.model.attention_history),
        "num_items": str(plan.tree.num_items),
    }
