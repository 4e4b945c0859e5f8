"""Histories and features from BYTES tensors, and recommendations as tensors, written on the threads that search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from beamtree.data.raw_ids import RawIds
from beamtree.data.vocabulary import Id
from beamtree.errors import IdTypeError
from beamtree.serving.answers import Answers
from beamtree.serving.api_error import ApiError, shortened, wrong_id_type
from beamtree.serving.limits import FEATURE_TEXT_CHARACTERS, ID_CHARACTERS
from beamtree.serving.schemas.fields import FeatureValues
from beamtree.serving.schemas.infer import InferInput
from beamtree.serving.written_answers import Counted, count, json_text

_features: TypeAdapter[dict[str, Any]] = TypeAdapter(FeatureValues)


@dataclass(frozen=True, kw_only=True)
class WrittenRow(Counted):
    """The answer to one history: elements of the output tensors as JSON."""

    item_ids: bytes
    scores: bytes
    count: int
    source: bytes


@dataclass(frozen=True)
class Tensor:
    """An output: (rows, k) where it has two dimensions, (rows,) where it has one.

    elements: JSON of the elements of a row; filling: of an element that pads it.
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


def read_histories(tensor: InferInput, *, place: int, ids: RawIds) -> list[list[Id]]:
    """The histories of the rows, without the empty texts that pad them; ApiError for anything but ids.

    place: of the tensor among the inputs, for the message.
    """
    rows = _rows(tensor, place=place, characters=ID_CHARACTERS)
    return [[_id(text, ids, place=place) for text in row if text] for row in rows]


def read_features(tensor: InferInput, *, place: int, num_rows: int) -> list[dict[str, Any]]:
    """Values by column for each row, read from JSON objects; ApiError for anything else.

    place: of the tensor among the inputs, for the message; num_rows: of the histories.
    """
    if tensor.shape != (num_rows, 1):
        raise _invalid(place, "shape", f"expected [{num_rows}, 1], one JSON object for each history", got=tensor.shape)
    return [_values(text, place=place) for [text] in _rows(tensor, place=place, characters=FEATURE_TEXT_CHARACTERS)]


def write_rows(outcomes: Sequence[Answers | BaseException]) -> list[list[WrittenRow] | BaseException]:
    """The rows of each call, or its exception."""
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
        **count(answer),
    )


def _rows(tensor: InferInput, *, place: int, characters: int) -> list[list[str]]:
    num_rows, length = tensor.shape
    flat: list[Any] = []
    for entry in tensor.data:
        if isinstance(entry, list):
            flat += entry
        else:
            flat.append(entry)
    if len(flat) != num_rows * length:
        raise _invalid(
            place, "shape", f"the data has {len(flat):,} elements, which is not the product", got=tensor.shape
        )
    for text in flat:
        if not isinstance(text, str) or len(text) > characters:
            raise _invalid(place, "data", f"expected texts of at most {characters:,} characters", got=text)
    return [flat[row * length : (row + 1) * length] for row in range(num_rows)]


def _id(text: str, ids: RawIds, *, place: int) -> Id:
    parsed = ids.parse(text)
    if parsed is None:
        message = (
            f"inputs[{place}].data: the item ids of this model are integers, got {shortened(text)}: send 50 as '50'."
        )
        raise wrong_id_type(IdTypeError(message, text))
    return parsed


def _values(text: str, *, place: int) -> dict[str, Any]:
    try:
        return _features.validate_json(text) if text else {}
    except ValidationError:
        problem = 'expected values by column as a JSON object, such as {"age": 33}'
        raise _invalid(place, "data", problem, got=text) from None


def _invalid(place: int, field: str, problem: str, *, got: object) -> ApiError:
    where = f"inputs[{place}].{field}"
    details = [{"field": where, "problem": problem, "got": shortened(got)}]
    return ApiError(422, "invalid_request", f"{where}: {problem}; got {shortened(got)}.", details=details)
