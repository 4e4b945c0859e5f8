"""What POST /v1/events and POST /admin/forget take and answer."""

from typing import Annotated

from pydantic import BaseModel, Field, StrictStr

from beamtree.serving.schemas.fields import (
    FiniteNumber,
    ItemId,
    Limited,
    RequestBody,
    UnknownIds,
    UserId,
    WholeNumber,
)


class Event(RequestBody):
    """A user interacted with an item."""

    user_id: UserId
    item_id: ItemId
    timestamp: FiniteNumber | WholeNumber | None = Field(None, description="seconds since 1970; default: now")
    event_type: Annotated[StrictStr, Field(min_length=1, max_length=255)] | None = Field(
        None, description="such as view or buy, weighted as in training; default: weight 1"
    )


class EventsBody(RequestBody):
    """Events in the order in which they happened; they come after all that the store already holds."""

    events: Annotated[list[Event], Field(min_length=1), Limited("events", "events in one call", finds_all=True)]
    unknown: UnknownIds = Field(
        "report", description="items that the model does not know; with 'refuse', no event is stored"
    )


class EventsAnswer(BaseModel):
    """The events are on disk."""

    accepted: int
    repeated: bool | None = Field(
        None, description="with Idempotency-Key: whether the key was seen before, so that nothing was added now"
    )
    ignored: int | None = Field(
        None, description="events of a type that training leaves out (weight 0); they are not stored"
    )
    unknown_ids: list[int | str] | None = None


class ForgetBody(RequestBody):
    """A user whose events are to be deleted."""

    user_id: UserId


class ForgetAnswer(BaseModel):
    """The events of the user are deleted."""

    deleted_events: int
    in_log: bool = Field(description="the log behind --histories holds the user too: remove it there and restart")
