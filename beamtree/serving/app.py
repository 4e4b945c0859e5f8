"""The web application: all routes, errors in one shape, the OpenAPI document."""

import logging
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Lifespan

from beamtree.serving.api_error import ApiError, shortened
from beamtree.serving.observed import Observed
from beamtree.serving.openapi import describe_interface
from beamtree.serving.routes.admin import admin_routes, forget_routes
from beamtree.serving.routes.change_items import change_items_routes
from beamtree.serving.routes.events import event_routes
from beamtree.serving.routes.health import health_routes
from beamtree.serving.routes.items import item_routes
from beamtree.serving.routes.model import model_routes
from beamtree.serving.routes.open_inference import open_inference_routes
from beamtree.serving.routes.page import page_routes
from beamtree.serving.routes.recommend import recommend_routes
from beamtree.serving.service import Service
from beamtree.serving.wire import error_response

PAGE = Path(__file__).parent / "page" / "dist"

log = logging.getLogger(__name__)


def create_app(service: Service, *, lifespan: Lifespan[FastAPI] | None = None) -> ASGIApp:
    """The application over a service. lifespan: entered when the server starts, left when it stops."""
    app = FastAPI(
        title="beamtree",
        version=version("beamtree"),
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=lifespan,
    )
    app.include_router(recommend_routes(service))
    app.include_router(item_routes(service))
    app.include_router(model_routes(service))
    app.include_router(health_routes(service))
    app.include_router(open_inference_routes(service))
    if service.events is not None:
        app.include_router(event_routes(service, service.events))
    if service.settings.admin_token:
        app.include_router(admin_routes(service))
        app.include_router(change_items_routes(service))
        if service.events is not None:
            app.include_router(forget_routes(service, service.events))
    app.include_router(page_routes(PAGE))
    _answer_errors(app, service)
    if service.settings.cors_origin:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.cors_origin),
            allow_methods=["GET", "POST"],
            allow_headers=["Content-Type", "X-Request-ID", "Idempotency-Key"],
        )
    app.openapi = lambda: describe_interface(app, service)  # type: ignore[method-assign]
    return Observed(app, service=service)


def _answer_errors(app: FastAPI, service: Service) -> None:
    """Answer every error in one shape."""

    @app.exception_handler(ApiError)
    async def answer(request: Request, error: ApiError) -> Response:
        request.scope["state"]["log"]["refused"] = error.code
        if error.status == 503:
            service.metrics.overloaded.labels(error.code).inc()
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def answer_parameters(request: Request, error: RequestValidationError) -> Response:
        details = [
            {"field": str(fault["loc"][-1]), "problem": fault["msg"], "got": shortened(fault.get("input"))}
            for fault in error.errors()
        ]
        first = details[0]
        message = f"{first['field']}: {first['problem']}; got {first['got']}."
        return await answer(request, ApiError(422, "invalid_request", message, details=details))

    @app.exception_handler(HTTPException)
    async def answer_address(request: Request, error: HTTPException) -> Response:
        code = {404: "no_such_address", 405: "wrong_method"}.get(error.status_code, "refused")
        message = f"{error.detail}: {request.method} {shortened(request.url.path)}. See /docs."
        return await answer(request, ApiError(error.status_code, code, message, headers=error.headers))

    @app.exception_handler(Exception)
    async def answer_failure(request: Request, error: Exception) -> Response:
        request_id = request.scope["state"]["request_id"]
        log.error("request failed", extra={"request_id": request_id}, exc_info=error)
        message = f"The server failed on this request. Its log has the details under {request_id}."
        return error_response(ApiError(500, "internal_error", message))
