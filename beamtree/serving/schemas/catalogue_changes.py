"""What POST /admin/items takes and answers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from beamtree.serving.schemas.fields import FiniteNumber, ItemId, Limited, RequestBody, WholeNumber
from beamtree.serving.schemas.operation import AdminAnswer

ItemValue = Annotated[StrictBool | WholeNumber | FiniteNumber | StrictStr, Field(union_mode="left_to_right")]
ItemValues = Annotated[list[ItemValue | None], Field(fail_fast=True)]


class NewItem(BaseModel):
    """An item, and any of the columns of the item table that the model was fitted with; dates are ISO texts."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, ItemValue | Annotated[list[ItemValue | None], Field(fail_fast=True)] | None] = Field(
        init=False
    )

    item_id: ItemId


class ItemsBody(RequestBody):
    """Items to add to the catalogue, and items to remove from it. A removed item comes back when it is added again."""

    add: Annotated[list[NewItem], Limited("items", "items in one call", finds_all=True)] = Field(
        default=[], description="items that the catalogue does not have"
    )
    remove: Annotated[list[ItemId], Limited("items", "items in one call", finds_all=True)] = Field(
        default=[], description="no longer recommended; histories may still contain them"
    )


class ItemsChangedAnswer(AdminAnswer):
    """The catalogue that is served now."""

    added: int
    reinstated: int = Field(description="items that had been removed and were added again")
    removed: int
    items: int = Field(description="items that can be recommended")
    leaves: int = Field(description="of the tree; it grows when no leaf is vacant")
