"""Health, readiness and metrics."""

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from beamtree.serving.schemas.operation import HealthAnswer, ReadyAnswer
from beamtree.serving.service import Service
from beamtree.serving.wire import json_response


def health_routes(service: Service) -> APIRouter:
    """Routes for load balancers and Prometheus."""
    router = APIRouter(tags=["operation"])

    @router.get("/healthz", response_model=HealthAnswer, summary="The process answers")
    async def health() -> Response:
        return json_response({"status": "ok"})

    @router.get(
        "/readyz",
        response_model=ReadyAnswer,
        responses={503: {"model": ReadyAnswer, "description": "The server is stopping"}},
        summary="Ready for requests, by which model, and why the last reload failed",
    )
    async def ready() -> Response:
        return json_response(describe_readiness(service), status=503 if service.is_stopping() else 200)

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text"}},
        summary="Metrics for Prometheus",
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def describe_readiness(service: Service) -> dict[str, Any]:
    """The answer of GET /readyz."""
    deployment = service.deployment
    failure = deployment.last_failure
    return {
        "ready": not service.is_stopping(),
        "model_version": deployment.current.version,
        "previous_version": deployment.previous.version if deployment.previous else None,
        "last_reload_failure": None
        if failure is None
        else {"message": failure.message, "at": datetime.fromtimestamp(failure.at, UTC).isoformat(timespec="seconds")},
    }
