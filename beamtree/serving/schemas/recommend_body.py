"""What POST /v1/recommend takes."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    Tag,
    TypeAdapter,
    ValidationInfo,
    model_validator,
)

from beamtree.serving.limits import COLUMNS, CONDITION_VALUES, CONDITIONS, Limits
from beamtree.serving.schemas.fields import (
    ColumnName,
    ConditionText,
    Count,
    FeatureValues,
    ItemId,
    Limited,
    RequestBody,
    UnknownIds,
    UserId,
    Value,
    limit_exceeded,
)

_NULL: dict[str, Any] = {"type": "null"}
_EITHER: dict[str, Any] = {
    "oneOf": [
        {"required": [given], "properties": {given: {"not": _NULL}, other: _NULL}}
        for given, other in (("history", "user_id"), ("user_id", "history"))
    ]
}


class Condition(RequestBody):
    """One condition on a column of the item table; of the four, at least one is given and all given ones must hold."""

    column: ColumnName = Field(description="a column of the item table, such as category")
    one_of: Annotated[list[Value], Field(fail_fast=True, max_length=CONDITION_VALUES)] | None = Field(
        None, description="one of these values"
    )
    contains: ConditionText | None = Field(
        None, description="a text column contains this; a list column has this element"
    )
    at_least: Value | None = Field(None, description="the smallest value allowed; dates as ISO texts")
    at_most: Value | None = Field(None, description="the largest value allowed")

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.one_of is None and self.contains is None and self.at_least is None and self.at_most is None:
            raise ValueError("a condition needs one_of, contains, at_least or at_most")
        return self


class Allow(RequestBody):
    """Which items may be returned: these ids, and those that meet all conditions; given both, both must hold."""

    ids: Annotated[list[ItemId], Limited("ids", "ids")] | None = Field(None, description="only these items")
    where: Annotated[list[Condition], Field(fail_fast=True, max_length=CONDITIONS)] | None = Field(
        None, description="only items that meet all of these conditions"
    )

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.ids is None and self.where is None:
            raise ValueError("allow needs ids or where")
        return self


class Recommend(RequestBody):
    """A request for one user: a history or a user id, and what to recommend."""

    model_config = ConfigDict(json_schema_extra=_EITHER)

    history: Annotated[list[ItemId], Limited("history", "items of a history")] | None = Field(
        None, description="raw item ids, newest last"
    )
    user_id: UserId | None = Field(None, description="a user of the history store, instead of a history")
    user_features: FeatureValues = Field(
        {}, description="values by column of the user table; GET /v1/model lists the columns that the model reads"
    )
    context: FeatureValues = Field(
        {}, description="values by context column of the log; GET /v1/model lists the columns that the model reads"
    )
    k: Annotated[Count, Limited("k", "items")] = Field(20, validate_default=True, description="how many items")
    beam: Annotated[Count, Limited("beam", "nodes per level")] | None = Field(
        None, description="nodes kept per level; default: the model's setting"
    )
    exclude_seen: StrictBool | None = Field(
        None, description="leave out the items of the history; default: the model's setting"
    )
    exclude: Annotated[list[ItemId], Limited("ids", "ids")] = Field([], description="items that are not returned")
    allow: Allow | None = Field(None, description="only these items may be returned; default: all")
    unknown: UnknownIds = Field(
        "report", description="ids that the model does not know: listed in the answer, ignored, or refused with 422"
    )
    fallback: Literal["popularity", "error"] = Field(
        "popularity",
        description="cold start, with neither a known item nor a feature: the most popular items, or 422",
    )
    columns: Annotated[list[ColumnName], Field(fail_fast=True, max_length=COLUMNS)] = Field(
        [], description="columns of the item table to return with each item"
    )
    explain: StrictBool = Field(
        False,
        description="return what each part of the score contributed, which items of the history support it, and the "
        "beam on every level",
    )

    @model_validator(mode="after")
    def _names_one_user(self) -> Self:
        if (self.history is None) == (self.user_id is None):
            raise ValueError("give either history or user_id")
        return self


def _explains_few(requests: list[Recommend], info: ValidationInfo) -> list[Recommend]:
    explained = sum(request.explain for request in requests)
    if isinstance(info.context, Limits) and explained > info.context.explained:
        raise limit_exceeded(explained, info.context.explained, of="explanations in one call")
    return requests


class RecommendMany(RequestBody):
    """Several requests in one call."""

    requests: Annotated[
        list[Recommend],
        Field(min_length=1),
        Limited("batch", "requests in one call", finds_all=True),
        AfterValidator(_explains_few),
    ] = Field(description="each as for one request")


def _one_or_many(body: object) -> str:
    return "many" if isinstance(body, dict) and "requests" in body else "one"


RecommendBody = Annotated[
    Annotated[Recommend, Tag("one")] | Annotated[RecommendMany, Tag("many")], Discriminator(_one_or_many)
]
recommend_body: TypeAdapter[Recommend | RecommendMany] = TypeAdapter(RecommendBody)
