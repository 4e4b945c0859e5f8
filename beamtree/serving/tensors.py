"""Histories from a BYTES tensor, and recommendations as tensors, written on the threads that search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beamtree.data.raw_ids import RawIds
from beamtree.data.vocabulary import Id
from beamtree.errors import IdTypeError
from beamtree.serving.answers import Answers
from beamtree.serving.api_error import ApiError, shortened, wrong_id_type
from beamtree.serving.infer_schemas import InferInput
from beamtree.serving.limits import ID_CHARACTERS
from beamtree.serving.written_answers import json_text


@dataclass(frozen=True)
class WrittenRow:
    """The answer to one history: elements of the output tensors as JSON, and what is counted of it."""

    item_ids: bytes
    scores: bytes
    count: int
    source: bytes
    is_fallback: bool
    unknown_ids: int


@dataclass(frozen=True)
class Tensor:
    """An output: (rows, k) where it has two dimensions, (rows,) where it has one.

    elements: JSON of the elements of a row that are there; filling: of one that is not.
    """

    datatype: str
    dimensions: int
    elements: Callable[[WrittenRow], bytes]
    filling: bytes = b""


OUTPUTS: Mapping[str, Tensor] = {
    "item_id": Tensor("BYTES", 2, lambda row: row.item_ids, b'""'),
    "score": Tensor("FP32", 2, lambda row: row.scores, b"0.0"),
    "count": Tensor("INT32", 1, lambda row: b"%d" % row.count),
    "source": Tensor("BYTES", 1, lambda row: row.source),
}


def read_histories(tensor: InferInput, *, ids: RawIds) -> list[list[Id]]:
    """The histories of the rows, without the empty texts that fill them up; ApiError for anything but ids."""
    num_rows, length = tensor.shape
    flat: list[Any] = []
    for entry in tensor.data:
        if isinstance(entry, list):
            flat += entry
        else:
            flat.append(entry)
    if len(flat) != num_rows * length:
        raise _invalid("shape", f"the data has {len(flat):,} elements, which is not the product", got=tensor.shape)
    for text in flat:
        if not isinstance(text, str) or len(text) > ID_CHARACTERS:
            raise _invalid("data", f"expected ids as texts of at most {ID_CHARACTERS} characters", got=text)
    rows = [flat[row * length : (row + 1) * length] for row in range(num_rows)]
    return [[_id(text, ids) for text in row if text] for row in rows]


def write_rows(outcomes: Sequence[Answers | BaseException]) -> list[list[WrittenRow] | BaseException]:
    """The rows of each call, or what it failed with."""
    return [
        outcome if isinstance(outcome, BaseException) else [_written(answer) for answer in outcome]
        for outcome in outcomes
    ]


def join_tensors(head: Mapping[str, Any], rows: Sequence[WrittenRow], *, wanted: Sequence[str], k: int) -> bytes:
    """One JSON object: the fields of the head, and the wanted tensors as `outputs`."""
    outputs = b",".join(_tensor(name, rows, k=k) for name in wanted)
    return b'%b,"outputs":[%b]}' % (json_text(head)[:-1], outputs)


def _tensor(name: str, rows: Sequence[WrittenRow], *, k: int) -> bytes:
    tensor = OUTPUTS[name]
    shape = [len(rows), k][: tensor.dimensions]
    elements = []
    for row in rows:
        missing = [tensor.filling] * (k - row.count) if tensor.dimensions == 2 else []
        elements += [tensor.elements(row), *missing] if row.count or tensor.dimensions == 1 else missing
    about = json_text({"name": name, "datatype": tensor.datatype, "shape": shape})
    return b'%b,"data":[%b]}' % (about[:-1], b",".join(elements))


def _written(answer: dict[str, Any]) -> WrittenRow:
    items = answer["items"]
    return WrittenRow(
        item_ids=json_text([str(item["item_id"]) for item in items])[1:-1],
        scores=json_text([item["score"] or 0.0 for item in items])[1:-1],
        count=len(items),
        source=json_text(answer["source"]),
        is_fallback=answer["source"] == "popularity",
        unknown_ids=len(answer.get("unknown_ids") or ()),
    )


def _id(text: str, ids: RawIds) -> Id:
    parsed = ids.parse(text)
    if parsed is None:
        message = f"inputs[0].data: the item ids of this model are integers, got {shortened(text)}: send 50 as '50'."
        raise wrong_id_type(IdTypeError(message, text))
    return parsed


def _invalid(field: str, problem: str, *, got: object) -> ApiError:
    details = [{"field": f"inputs[0].{field}", "problem": problem, "got": shortened(got)}]
    return ApiError(422, "invalid_request", f"inputs[0].{field}: {problem}; got {shortened(got)}.", details=details)
