"""The web application: routes, refusals in one shape, the OpenAPI document, the page."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Scope

from beamtree.serving.api_error import ApiError, shortened
from beamtree.serving.direct import Direct, Refuse
from beamtree.serving.routes.admin import admin_routes
from beamtree.serving.routes.change_items import change_items_routes
from beamtree.serving.routes.contract import add_bodies
from beamtree.serving.routes.events import event_routes
from beamtree.serving.routes.forget import forget_routes
from beamtree.serving.routes.health import health_routes
from beamtree.serving.routes.items import item_routes
from beamtree.serving.routes.model import model_routes
from beamtree.serving.routes.open_inference import open_inference_routes
from beamtree.serving.routes.recommend import recommend_routes
from beamtree.serving.service import Service
from beamtree.serving.wire import Observed, error_response

HERE = Path(__file__).parent
PAGE = HERE / "page" / "dist"
PAGE_POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"


def create_app(service: Service, *, page: Path = PAGE) -> ASGIApp:
    """The application over a service. The page and its docs are served at / and /docs where their files are there."""
    app = FastAPI(
        title="beamtree", version=version("beamtree"), docs_url=None, redoc_url=None, openapi_url="/openapi.json"
    )
    recommending = recommend_routes(service)
    app.include_router(recommending)
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
    if (page / "index.html").is_file():
        files = _PageFiles(directory=page, html=True)
        app.add_api_route("/docs", files.docs, include_in_schema=False)
        app.router.default = files  # after all routes, also those of another method
    refuse = _refuse_in_one_shape(app, service)
    app.openapi = lambda: _openapi(app, service)  # type: ignore[method-assign]
    answering: ASGIApp = Direct(app, routes=recommending.routes, refuse=refuse)
    if service.settings.cors_origins:
        answering = _Origins(
            answering,
            allow_origins=list(service.settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Content-Type", "X-Request-ID", "Idempotency-Key"],
        )
    return Observed(answering, service=service)


class _Origins(CORSMiddleware):
    """Which web origins may call, refusing others in the shape of all refusals."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """What a browser is told before it asks."""
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        kept = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
        said = bytes(response.body).decode()
        return error_response(ApiError(response.status_code, "origin_not_allowed", f"{said}.", headers=kept))


class _PageFiles(StaticFiles):
    """The files of the page, which may load nothing from elsewhere."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file at a path; to anything but reading, no address leads here."""
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(status_code=404)
        scope["headers"] = [header for header in scope["headers"] if header[0] != b"range"]  # these files are small
        return await super().get_response(path, scope)

    async def docs(self, request: Request) -> Response:
        """The interface for people."""
        return await self.get_response("docs.html", request.scope)

    def file_response(self, *arguments: Any, **named: Any) -> Response:
        """A file, with rules for the browser: load nothing from elsewhere, ask each time whether it has changed."""
        response = super().file_response(*arguments, **named)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Content-Security-Policy"] = PAGE_POLICY
        return response


def _refuse_in_one_shape(app: FastAPI, service: Service) -> Refuse:
    """Let the application refuse in one shape; returns how a refusal becomes an answer."""

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        request.scope["state"]["log"]["refused"] = error.code
        if error.status == 503:
            service.metrics.overloaded.labels(error.code).inc()
        return error_response(error)

    async def refuse_parameters(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        details = [
            {"field": str(fault["loc"][-1]), "problem": fault["msg"], "got": shortened(fault.get("input"))}
            for fault in error.errors()
        ]
        first = details[0]
        message = f"{first['field']}: {first['problem']}; got {first['got']}."
        return await refuse(request, ApiError(422, "invalid_request", message, details=details))

    async def refuse_address(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = {404: "no_such_address", 405: "wrong_method"}.get(error.status_code, "refused")
        message = f"{error.detail}: {request.method} {shortened(request.url.path)}. See /docs."
        refusal = ApiError(error.status_code, code, message, headers=error.headers)
        return await refuse(request, refusal)

    app.add_exception_handler(ApiError, refuse)
    app.add_exception_handler(RequestValidationError, refuse_parameters)
    app.add_exception_handler(HTTPException, refuse_address)
    return refuse


def _openapi(app: FastAPI, service: Service) -> dict[str, Any]:
    """The OpenAPI document for the model in service."""
    model = service.deployment.current
    if app.openapi_schema is None or app.openapi_schema["info"]["x-model-version"] != model.version:
        document = get_openapi(
            title=app.title,
            version=app.version,
            summary="Recommendations by beam search down a learned tree",
            routes=app.routes,
        )
        document["info"]["x-model-version"] = model.version
        add_bodies(document, limits=service.settings.limits, model=model, histories=service.histories)
        app.openapi_schema = document
    return app.openapi_schema
