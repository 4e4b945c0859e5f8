"""The JSON bodies of the Open Inference Protocol, as far as a recommender needs them. Unknown fields are refused."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, WithJsonSchema

from beamtree.serving.limits import ID_CHARACTERS
from beamtree.serving.schemas import Count

INPUT = "history"
TEXT_CHARACTERS = 256
_TEXT = {"type": "string", "maxLength": ID_CHARACTERS}
_ROWS = {
    "anyOf": [{"type": "array", "items": _TEXT}, {"type": "array", "items": {"type": "array", "items": _TEXT}}],
    "description": "item ids as texts, row after row, in one list or in a list for each row; an empty text is no item",
}


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InferParameters(_Asked):
    """What holds for all rows of a batch, as in POST /v1/recommend."""

    k: Count = Field(20, ge=1, description="how many items")
    beam: Count | None = Field(None, ge=1, description="nodes kept per level; default: the model's setting")
    exclude_seen: StrictBool | None = Field(None, description="leave out the history; default: the model's setting")
    fallback: Literal["popularity", "error"] = Field(
        "popularity", description="for a history without any known item: the most popular items, or 422"
    )
    unknown: Literal["ignore", "refuse"] = Field("ignore", description="ids that the model has never seen")
    binary_data_output: StrictBool | None = Field(None, description="accepted and ignored: answers are JSON")
    content_type: Annotated[StrictStr, Field(max_length=TEXT_CHARACTERS)] | None = Field(
        None, description="accepted and ignored"
    )
    headers: dict[str, Any] | None = Field(None, description="accepted and ignored")


class InferInput(_Asked):
    """The input tensor: one history a row, newest item last."""

    name: Literal["history"]
    shape: tuple[Annotated[Count, Field(ge=1)], Annotated[Count, Field(ge=0)]] = Field(
        description="histories, and items of the longest of them"
    )
    datatype: Literal["BYTES"]
    parameters: dict[str, Any] = Field({}, description="accepted and ignored")
    data: Annotated[list[Any], WithJsonSchema(_ROWS)]


class InferOutput(_Asked):
    """An output tensor that is wanted."""

    name: Literal["item_id", "score", "count", "source"]
    parameters: dict[str, Any] = Field({}, description="accepted and ignored")


class InferBody(_Asked):
    """A batch of histories as a tensor."""

    id: Annotated[StrictStr, Field(max_length=TEXT_CHARACTERS)] | None = Field(
        None, description="comes back with the answer"
    )
    parameters: InferParameters = InferParameters()
    inputs: Annotated[list[InferInput], Field(min_length=1, max_length=1)]
    outputs: Annotated[list[InferOutput], Field(min_length=1, max_length=4)] | None = Field(
        None, description="default: all"
    )


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
