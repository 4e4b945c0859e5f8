"""What the Open Inference Protocol (/v2) takes and answers, as far as a recommender needs it."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, StrictBool, StrictStr, WithJsonSchema, model_validator

from beamtree.serving.limits import FEATURE_TEXT_CHARACTERS
from beamtree.serving.schemas.fields import LIMIT, Count, Length, Limited, RequestBody

HISTORY, USER_FEATURES, CONTEXT = "history", "user_features", "context"
TEXT_CHARACTERS = 256
_TEXT = {"type": "string", "maxLength": FEATURE_TEXT_CHARACTERS}
_DATA = {
    "anyOf": [
        {"type": "array", "items": _TEXT, LIMIT: "elements"},
        {"type": "array", "items": {"type": "array", "items": _TEXT, LIMIT: "history"}, LIMIT: "batch"},
    ],
    "description": "texts, row after row, in one list or in a list for each row: item ids, or for features one JSON "
    "object a row; an empty text pads a history, or says that no feature is known",
}


class InferParameters(RequestBody):
    """What holds for all rows of a batch, as in POST /v1/recommend."""

    k: Annotated[Count, Limited("k", "items")] = Field(20, validate_default=True, description="how many items")
    beam: Annotated[Count, Limited("beam", "nodes per level")] | None = Field(
        None, description="nodes kept per level; default: the model's setting"
    )
    exclude_seen: StrictBool | None = Field(
        None, description="leave out the items of the history; default: the model's setting"
    )
    fallback: Literal["popularity", "error"] = Field(
        "popularity", description="cold start, with neither a known item nor a feature: the most popular items, or 422"
    )
    unknown: Literal["ignore", "refuse"] = Field("ignore", description="ids that the model does not know")
    binary_data_output: StrictBool | None = Field(None, description="accepted and ignored: answers are JSON")
    content_type: Annotated[StrictStr, Field(max_length=TEXT_CHARACTERS)] | None = Field(
        None, description="accepted and ignored"
    )
    headers: dict[str, Any] | None = Field(None, description="accepted and ignored")


class InferInput(RequestBody):
    """An input tensor with a row for each request.

    history has a column for each item of the longest history, newest item last; user_features and context have one
    column, of JSON objects as texts.
    """

    name: Literal["history", "user_features", "context"]
    shape: tuple[
        Annotated[Count, Limited("batch", "histories in one call")],
        Annotated[Length, Limited("history", "items of a history")],
    ] = Field(description="rows and columns")
    datatype: Literal["BYTES"]
    parameters: dict[str, Any] = Field({}, description="accepted and ignored")
    data: Annotated[list[Any], WithJsonSchema(_DATA)]


class InferOutput(RequestBody):
    """An output tensor that is wanted."""

    name: Literal["item_id", "score", "count", "source"]
    parameters: dict[str, Any] = Field({}, description="accepted and ignored")


class InferBody(RequestBody):
    """A batch of histories as a tensor, and features of users and contexts as others."""

    id: Annotated[StrictStr, Field(max_length=TEXT_CHARACTERS)] | None = Field(
        None, description="comes back with the answer"
    )
    parameters: InferParameters = InferParameters()
    inputs: Annotated[list[InferInput], Field(fail_fast=True, min_length=1, max_length=3)] = Field(
        description="history, and where the model reads such features also user_features and context"
    )
    outputs: Annotated[list[InferOutput], Field(fail_fast=True, min_length=1, max_length=4)] | None = Field(
        None, description="default: all"
    )

    @model_validator(mode="after")
    def _names_history_once(self) -> Self:
        names = [tensor.name for tensor in self.inputs]
        if HISTORY not in names or len(set(names)) < len(names):
            raise ValueError("inputs are history and, at most once each, user_features and context")
        return self


class TensorMetadata(BaseModel):
    """A tensor that the model takes or gives; -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """The model in service."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ServerMetadata(BaseModel):
    """The server."""

    name: str
    version: str
    extensions: list[str]


class ServerLive(BaseModel):
    """The process answers."""

    live: bool


class ServerReady(BaseModel):
    """Whether requests are answered."""

    ready: bool


class OutputTensor(TensorMetadata):
    """A tensor of an answer, its elements row after row in one list."""

    data: list[str] | list[float]


class InferAnswer(BaseModel):
    """Recommendations as tensors, a row for each history.

    item_id and score have k columns: what comes after the first `count` items of a row is filled up with "" and 0.
    Popular items, for which `source` says popularity, have the score 0.
    """

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[OutputTensor]
