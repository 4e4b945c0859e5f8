"""POST /v1/events. This route exists only with a store of events."""

import json
import time
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from pydantic import TypeAdapter

from beamtree.data.events import EventTypes
from beamtree.data.raw_ids import unknown_ids
from beamtree.data.vocabulary import Id
from beamtree.errors import IdTypeError
from beamtree.serving.api_error import ApiError, shortened, wrong_id_type
from beamtree.serving.event_file import StoredEvent
from beamtree.serving.events import EventStore
from beamtree.serving.limits import SHOWN_IDS
from beamtree.serving.openapi import body_of
from beamtree.serving.routes.error_responses import JSON_BODY_ERRORS, SEARCH_ERRORS
from beamtree.serving.schemas.events import Event, EventsAnswer, EventsBody
from beamtree.serving.service import Service
from beamtree.serving.wire import json_response, read_json

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="a unique name of this call, such as a UUID: repeated within a day, it stores nothing again",
    ),
]

events_body = TypeAdapter(EventsBody)


def event_routes(service: Service, store: EventStore) -> APIRouter:
    """Storing events of users."""
    router = APIRouter(tags=["events"])
    settings = service.settings

    @router.post(
        "/v1/events",
        response_model=EventsAnswer,
        responses=JSON_BODY_ERRORS | SEARCH_ERRORS,
        openapi_extra=body_of("EventsBody"),
        summary="Store events, which extend the histories of users; answered when they are on disk",
    )
    async def add_events(request: Request, idempotency_key: IdempotencyKey = None) -> Response:
        service.watermarks.refuse_events()
        asked = await read_json(request, events_body, settings=settings)
        unknown = _check(service, asked)
        now = time.time()
        kept = _kept(service, asked)
        is_new = await store.add(
            [
                StoredEvent(
                    event.user_id,
                    event.item_id,
                    now if event.timestamp is None else event.timestamp,
                    event.event_type,
                )
                for event in kept
            ],
            key=idempotency_key,
            content=b"" if idempotency_key is None else _content(asked),
        )
        service.metrics.events.inc(len(kept) if is_new else 0)
        request.scope["state"]["log"]["events"] = len(kept) if is_new else 0
        answer: dict[str, object] = {"accepted": len(asked.events)}
        answer |= {} if idempotency_key is None else {"repeated": not is_new}
        answer |= {"ignored": len(asked.events) - len(kept)} if len(kept) < len(asked.events) else {}
        return json_response(answer | ({"unknown_ids": unknown} if asked.unknown == "report" else {}))

    return router


def _check(service: Service, asked: EventsBody) -> list[Id]:
    """The items that the model does not know; ApiError for ids of the wrong type, or for unknown ones if so asked."""
    model = service.deployment.current
    items = [event.item_id for event in asked.events]
    try:
        model.ids.check(items, what="item_id")
        if service.histories is not None:
            service.histories.check_users([event.user_id for event in asked.events])
    except IdTypeError as error:
        raise wrong_id_type(error) from None
    unknown = unknown_ids(items, model.ids.encode(items))
    if unknown and asked.unknown == "refuse":
        raise ApiError(
            422,
            "unknown_ids",
            f"{len(unknown)} items are unknown to the model, the first is {shortened(unknown[0])}. No event was taken.",
            details=unknown[:SHOWN_IDS],
        )
    return unknown


def _kept(service: Service, asked: EventsBody) -> list[Event]:
    """The events of types that the model was not fitted to leave out; ApiError for types that it does not know."""
    settings = service.deployment.current.artefact.config.log
    types = EventTypes.of(settings.event_weights, settings.target_events)
    if types is None:
        return list(asked.events)
    named = dict.fromkeys(event.event_type for event in asked.events if event.event_type is not None)
    unknown = [name for name in named if not types.is_known(name)]
    if unknown:
        raise ApiError(
            422,
            "unknown_event_type",
            f"The model was fitted with the event types {', '.join(types.weights)}; got {shortened(unknown[0])}. No "
            "event was taken. Send one of these, or leave event_type out: the event then counts 1.",
            details=unknown[:SHOWN_IDS],
        )
    return [event for event in asked.events if types.weight_of(event.event_type) is not None]


def _content(asked: EventsBody) -> bytes:
    """The content of a call, independent of the formatting of its JSON and of its time of arrival."""
    said = [[event.user_id, event.item_id, event.timestamp, event.event_type] for event in asked.events]
    return json.dumps([row if row[3] is not None else row[:3] for row in said]).encode()
