"""POST /admin/forget: delete the events of one user. It exists only with a store of events and a token."""

from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter

from beamtree.errors import IdTypeError
from beamtree.serving.api_error import wrong_id_type
from beamtree.serving.events import EventStore
from beamtree.serving.openapi import body_of
from beamtree.serving.routes.admin import check_token
from beamtree.serving.routes.error_responses import ADMIN_ERRORS, JSON_BODY_ERRORS, SEARCH_ERRORS
from beamtree.serving.schemas.events import ForgetAnswer, ForgetBody
from beamtree.serving.service import Service
from beamtree.serving.wire import json_response, read_json

forget_body = TypeAdapter(ForgetBody)


def forget_routes(service: Service, store: EventStore) -> APIRouter:
    """Deletion of the events of a user. The id is in the body, so that no proxy logs it."""
    router = APIRouter(tags=["admin"])
    settings = service.settings

    @router.post(
        "/admin/forget",
        response_model=ForgetAnswer,
        responses=ADMIN_ERRORS | JSON_BODY_ERRORS | SEARCH_ERRORS,
        openapi_extra=body_of("ForgetBody"),
        summary="Delete the events of one user, from disk and from memory",
    )
    async def forget(request: Request) -> Response:
        check_token(request, settings.admin_token)
        user = (await read_json(request, forget_body, settings=settings)).user_id
        try:
            if service.histories is not None:
                service.histories.check_users([user])
        except IdTypeError as error:
            raise wrong_id_type(error) from None
        deleted = await store.erase_user(user)
        in_log = service.histories is not None and service.histories.of(user) is not None
        return json_response({"deleted_events": deleted, "in_log": in_log})

    return router
