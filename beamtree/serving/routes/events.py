"""POST /v1/events. This route exists only where a store of events is given."""

import time
from collections.abc import Sequence

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from beamtree.data.vocabulary import Id
from beamtree.errors import IdTypeError
from beamtree.serving.answers import MAX_SHOWN_IDS
from beamtree.serving.events import EventStore, StoredEvent
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.refusal import Refusal, shortened, unusable, wrong_id_type
from beamtree.serving.routes.contract import JSON_BODY_ERRORS, SEARCH_ERRORS, at_most, body_of
from beamtree.serving.schemas import Event, EventsAnswer, EventsBody
from beamtree.serving.service import Service
from beamtree.serving.wire import json_response, read_body


def event_routes(service: Service, store: EventStore) -> APIRouter:
    """Taking note of what users do."""
    router = APIRouter(tags=["events"])
    settings = service.settings

    @router.post(
        "/v1/events",
        response_model=EventsAnswer,
        responses=JSON_BODY_ERRORS | SEARCH_ERRORS,
        openapi_extra=body_of("EventsBody"),
        summary="Add to the histories of users; answered when the events are on disk",
    )
    async def add_events(request: Request) -> Response:
        body = await read_body(request, most_bytes=settings.limits.body_bytes, seconds=settings.timeout_seconds)
        try:
            asked = EventsBody.model_validate_json(body)
        except ValidationError as error:
            raise unusable(error) from None
        at_most(len(asked.events), settings.limits.events, what="events in one call", field="events")
        unknown = _check(service, asked)
        now = time.time()
        await store.add(
            [
                StoredEvent(event.user_id, event.item_id, now if event.timestamp is None else event.timestamp)
                for event in asked.events
            ]
        )
        service.metrics.events.inc(len(asked.events))
        request.scope["state"]["log"]["events"] = len(asked.events)
        answer: dict[str, object] = {"accepted": len(asked.events)}
        return json_response(answer | ({"unknown_ids": unknown} if asked.unknown == "report" else {}))

    return router


def _check(service: Service, asked: EventsBody) -> list[Id]:
    """The items that the model does not know; Refusal for ids of the wrong type, or for unknown ones if so asked."""
    model = service.deployment.current
    try:
        model.ids.check([event.item_id for event in asked.events], what="item_id")
        if service.histories is not None:
            service.histories.check_users([event.user_id for event in asked.events])
    except IdTypeError as error:
        raise wrong_id_type(error) from None
    unknown = _unknown_items(model, asked.events)
    if unknown and asked.unknown == "refuse":
        raise Refusal(
            422,
            "unknown_ids",
            f"{len(unknown)} items are unknown to the model, the first is {shortened(unknown[0])}. No event was taken.",
            details=unknown[:MAX_SHOWN_IDS],
        )
    return unknown


def _unknown_items(model: LoadedModel, events: Sequence[Event]) -> list[Id]:
    ids = [event.item_id for event in events]
    return [ids[index] for index in np.flatnonzero(model.ids.encode(ids) < 0).tolist()]
