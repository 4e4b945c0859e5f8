"""Reload and rollback of the model, and deletion of a user's events. These routes exist only where a token is set."""

import asyncio
import hmac
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter

from beamtree.errors import ArtefactError, IdTypeError
from beamtree.serving.api_error import ApiError, wrong_id_type
from beamtree.serving.events import EventStore
from beamtree.serving.openapi import body_of
from beamtree.serving.routes.error_responses import ADMIN_ERRORS, JSON_BODY_ERRORS, SEARCH_ERRORS
from beamtree.serving.schemas.events import ForgetAnswer, ForgetBody
from beamtree.serving.schemas.operation import AdminAnswer
from beamtree.serving.service import Service
from beamtree.serving.wire import json_response, read_json


def admin_routes(service: Service) -> APIRouter:
    """Reload and rollback, with the admin token."""
    router = APIRouter(tags=["admin"])

    @router.post(
        "/admin/reload", response_model=AdminAnswer, responses=ADMIN_ERRORS, summary="Read the model folder now"
    )
    async def reload(request: Request) -> Response:
        check_token(request, service.settings.admin_token)
        try:
            changed = await asyncio.to_thread(service.deployment.reload)
        except ArtefactError as error:
            raise ApiError(409, "model_refused", str(error)) from None
        return json_response(describe_served(service, changed=changed))

    @router.post(
        "/admin/rollback", response_model=AdminAnswer, responses=ADMIN_ERRORS, summary="Serve the previous model again"
    )
    async def rollback(request: Request) -> Response:
        check_token(request, service.settings.admin_token)
        await asyncio.to_thread(service.deployment.rollback)
        return json_response(describe_served(service, changed=True))

    return router


def check_token(request: Request, token: str) -> None:
    """401 unless the request carries the token; compared in constant time."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    is_right = hmac.compare_digest(given.strip().encode(), token.encode())
    if scheme.lower() != "bearer" or not is_right:
        raise ApiError(
            401,
            "not_allowed",
            "Send the admin token as 'Authorization: Bearer TOKEN'.",
            headers={"WWW-Authenticate": "Bearer"},
        )


def describe_served(service: Service, *, changed: bool) -> dict[str, Any]:
    """The current and the previous model."""
    deployment = service.deployment
    return {
        "model_version": deployment.current.version,
        "previous_version": deployment.previous.version if deployment.previous else None,
        "changed": changed,
    }


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
