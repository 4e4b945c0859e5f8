"""Types that several bodies share: ids, values, and bounds that the operator sets."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationInfo,
)
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import TypeAliasType

from beamtree.serving.api_error import LIMIT_EXCEEDED
from beamtree.serving.limits import (
    COLUMN_NAME_CHARACTERS,
    CONDITION_CHARACTERS,
    FEATURE_COLUMNS,
    FEATURE_VALUES,
    ID_CHARACTERS,
    Limits,
)

EXACT_FLOATS = 2**53
"""Up to here a floating-point number means one integer, and further on several."""
LIMIT = "x-limit"
"""Under this name a schema says which of the limits bounds it; the OpenAPI document says how much that is."""


class RequestBody(BaseModel):
    """Base of everything that clients send: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeName(BaseModel):
    """A node of the tree; level 0 is the root."""

    level: int
    node: int


@dataclass(frozen=True)
class Limited:
    """Bounds an integer, or the length of a list, by one of the `Limits` that a body is validated with.

    limit: the name of the bound; of: what is counted. Without limits as the validation context, nothing is bounded.
    Validation of a list stops at its first faulty element. With `finds_all` all faults are reported; then the length
    is checked before the elements, so that there are not too many.
    """

    limit: str
    of: str
    finds_all: bool = False

    def check(self, value: Any, info: ValidationInfo) -> Any:
        """The value; PydanticCustomError where it exceeds the limit. What is no list or integer passes."""
        number = len(value) if isinstance(value, list) else value
        if not isinstance(info.context, Limits) or not isinstance(number, int):
            return value
        if number > (limit := getattr(info.context, self.limit)):
            raise limit_exceeded(number, limit, of=self.of)
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        if self.finds_all:
            return core_schema.with_info_before_validator_function(self.check, schema)
        if schema["type"] == "list":
            schema = cast(CoreSchema, {**schema, "fail_fast": True})
        return core_schema.with_info_after_validator_function(self.check, schema)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), LIMIT: self.limit}


def limit_exceeded(number: int, limit: int, *, of: str) -> PydanticCustomError:
    """The fault of a body that asks for more than the operator allows."""
    message = f"at most {limit:,} {of} are allowed here, got {number:,}"
    return PydanticCustomError(LIMIT_EXCEEDED, "{message}", {"message": message, "limit": limit, "got": number})


def _exact(value: object) -> int:
    """40576.0 is an integer, to JSON Schema as to JavaScript."""
    if not isinstance(value, float) or not value.is_integer() or abs(value) > EXACT_FLOATS:
        raise ValueError("expected an integer")
    return int(value)


def _exact_float(value: object) -> object:
    return _exact(value) if isinstance(value, float) else value


Count = Annotated[StrictInt, Field(ge=1), BeforeValidator(_exact_float)]
Length = Annotated[StrictInt, Field(ge=0), BeforeValidator(_exact_float)]
WholeNumber = Annotated[StrictInt, Field(ge=-(2**63), le=2**63 - 1)]
AnyId = Annotated[
    Annotated[StrictStr, Field(max_length=ID_CHARACTERS)]
    | WholeNumber
    | SkipJsonSchema[Annotated[int, BeforeValidator(_exact)]],
    Field(union_mode="left_to_right"),  # four times as fast for texts as the search for the best match
]
ItemId = TypeAliasType("ItemId", AnyId)
UserId = TypeAliasType("UserId", AnyId)
ColumnName = TypeAliasType("ColumnName", Annotated[StrictStr, Field(max_length=COLUMN_NAME_CHARACTERS)])
"""Named, so that the OpenAPI document can say what the ids and columns of the served model are."""

FiniteNumber = Annotated[StrictFloat, Field(allow_inf_nan=False)]
ConditionText = Annotated[StrictStr, Field(max_length=CONDITION_CHARACTERS)]
Value = Annotated[StrictBool | WholeNumber | FiniteNumber | ConditionText, Field(union_mode="left_to_right")]
FeatureValue = Value | Annotated[list[Value], Field(fail_fast=True, max_length=FEATURE_VALUES)] | None


def _has_few_columns(values: object) -> object:
    """Checked before the values, each of which may have several faults."""
    if isinstance(values, dict) and len(values) > FEATURE_COLUMNS:
        raise ValueError(f"expected at most {FEATURE_COLUMNS} columns")
    return values


FeatureValues = Annotated[
    dict[ColumnName, FeatureValue], Field(max_length=FEATURE_COLUMNS), BeforeValidator(_has_few_columns)
]
"""Values by column, null = missing."""

UnknownIds = Literal["report", "ignore", "refuse"]
