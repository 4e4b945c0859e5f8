"""What GET /v1/model and the routes of the tree answer."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from beamtree.serving.schemas.fields import NodeName
from beamtree.serving.schemas.items import ItemRow

_NAME = "typical categories, or the most popular titles below; empty where neither is known"


class ColumnValue(BaseModel):
    """A value of a column and the number of items that have it."""

    value: Any
    count: int


class ColumnFacts(BaseModel):
    """A column of the item table."""

    name: str
    type: str
    values: list[ColumnValue] | None = Field(description="most frequent first; null where there are too many")


class FeatureFacts(BaseModel):
    """A column that is read as a feature."""

    name: str
    kind: Literal["category", "categories", "number", "vector"] = Field(
        description="category: a text, a number or a boolean; categories: several of them, as a list; number: also an "
        "ISO date; vector: a list of `size` numbers"
    )
    size: int | None = Field(None, description="of a vector")


class ModelFeatures(BaseModel):
    """The columns that are read as features."""

    items: list[FeatureFacts] = Field(description="columns of the item table, which place new items in the tree")
    users: list[FeatureFacts] = Field(description="what user_features may hold")
    context: list[FeatureFacts] = Field(description="what context may hold")


class ModelAnswer(BaseModel):
    """What is being served."""

    model_version: str
    loaded_at: str
    id_type: Literal["integer", "text"]
    items: int
    history_length: int
    tree: dict[str, Any]
    defaults: dict[str, Any]
    limits: dict[str, int]
    columns: list[ColumnFacts]
    features: ModelFeatures
    metrics: dict[str, dict[str, float]]
    training: dict[str, Any]
    users: bool = Field(description="whether user_id may be given")
    events: bool = Field(description="whether POST /v1/events exists")


class NodeSummary(NodeName):
    """A node and what is below it."""

    name: str = Field(description=_NAME)
    leaves: int
    items: int
    sample: list[ItemRow] = Field(description="the most popular items below")
    values: list[ColumnValue] = Field(description="the most frequent categories below")


class NodeAnswer(NodeSummary):
    """A node of the tree, its children and its path to the root."""

    model_version: str
    is_leaf: bool
    path: list[NodeName] = Field(description="from the root to this node")
    children: list[NodeSummary]


class Branch(NodeName):
    """A node of an upper level."""

    name: str = Field(description=_NAME)
    items: int


class BranchesAnswer(BaseModel):
    """The nodes of the upper levels, from the top down."""

    model_version: str
    branches: list[Branch]
