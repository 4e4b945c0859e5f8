"""What GET /v1/items and the routes below it answer."""

from typing import Any

from pydantic import BaseModel, Field

from beamtree.serving.schemas.fields import NodeName


class ItemRow(BaseModel):
    """An item and the requested columns."""

    item_id: int | str
    popularity: int | float = Field(description="training interactions, or the sum of their weights")
    columns: dict[str, Any]


class ItemAnswer(ItemRow):
    """Everything known about an item."""

    model_version: str
    leaf: int
    path: list[NodeName] = Field(description="from the root to the leaf")


class ItemsAnswer(BaseModel):
    """Items whose id or title equals the text, then those that start with it, then those that contain it.

    Items requested by id come in the order of the ids.
    """

    model_version: str
    matches: int = Field(description="how many items match in all")
    items: list[ItemRow]
    unknown_ids: list[str] | None = Field(None, description="with id: those that the model does not know")


class NearItem(ItemRow):
    """A similar item."""

    common_level: int | None = Field(
        None, description="by tree: the level of the lowest common ancestor; higher is nearer"
    )
    similarity: float | None = Field(None, description="by embedding: cosine similarity of the leaf vectors")
    strength: float | None = Field(None, description="by memory: ln(1 + how often it followed the item)")


class SimilarAnswer(BaseModel):
    """Neighbours of an item in the tree, by the cosine of leaf vectors, and by what followed it in the log.

    by_embedding needs a model with attention or a tower, by_memory one with memory; they are null otherwise.
    """

    model_version: str
    item_id: int | str
    by_tree: list[NearItem] | None
    by_embedding: list[NearItem] | None
    by_memory: list[NearItem] | None
