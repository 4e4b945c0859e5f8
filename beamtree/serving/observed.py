"""Around every request: an id, metrics, a log line, a trace, and errors that need no route."""

import asyncio
import logging
import random
import re
import time
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from beamtree.serving.api_error import CLIENT_HAS_GONE, ApiError, headers_too_large
from beamtree.serving.http_protocol import CONNECTION, GuardedProtocol
from beamtree.serving.limits import HEADER_BYTES
from beamtree.serving.service import SearchSpan, Service
from beamtree.serving.wire import error_response

if TYPE_CHECKING:  # OpenTelemetry is optional
    from beamtree.integrations.telemetry import Spans

access_log = logging.getLogger("beamtree.serving.access")

REQUEST_ID = "x-request-id"
ALWAYS_ANSWERED = ("/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready")
"""For newcomers too: monitoring has to work when the server is full."""
_USABLE_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SAFETY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


class Observed:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, service: Service) -> None:
        self._app = app
        self._metrics = service.metrics
        self._writes_log = service.settings.access_log
        self._spans = service.spans
        self._traced = ("/v1/recommend", f"/v2/models/{service.settings.model_name}/infer")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or pass on what is not HTTP."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_at = time.perf_counter()
        request_id = _request_id(scope)
        scope.setdefault("state", {}).update(log={}, request_id=request_id)
        status = 0
        is_complete = False
        is_last = False

        async def send_observed(message: Message) -> None:
            nonlocal status, is_complete
            if message["type"] == "http.response.start":
                status = message["status"]
                if connection is not None:
                    connection.answering()
                message["headers"] = [*message["headers"], *_SAFETY_HEADERS, (REQUEST_ID.encode(), request_id.encode())]
                if is_last:
                    message["headers"].append((b"connection", b"close"))
            await send(message)
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)

        connection: GuardedProtocol | None = scope["state"].pop(CONNECTION, None)
        self._metrics.in_flight.inc()
        try:
            if connection is not None:
                await connection.answer_is_read.wait()
                is_last = not connection.admit()
            error = _early_error(scope, connection, is_last=is_last)
            if error is not None:
                if error.status == 503:
                    self._metrics.overloaded.labels(error.code).inc()
                await error_response(error)(scope, receive, send_observed)
            else:
                await self._app(scope, receive, send_observed)
        except asyncio.CancelledError:
            is_stuck = connection is not None and not connection.answer_is_read.is_set()
            if status or is_stuck:
                raise
            await error_response(_stopped())(scope, receive, send_observed)
        except Exception:  # the application has logged it, and answered unless it had begun to
            if not is_complete:
                raise
        finally:
            if connection is not None:
                connection.answered()
            seconds = time.perf_counter() - began_at
            loop = asyncio.get_running_loop()
            status = status or CLIENT_HAS_GONE
            loop.call_soon(self._note, scope, request_id, status, seconds)  # after the answer was sent
            if self._spans is not None:
                loop.call_soon(self._trace, self._spans, scope, request_id, status, began_at, seconds)

    def _note(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        route = str(getattr(scope.get("route"), "path_format", "other"))
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        self._metrics.request_done(method=method, route=route, status=status, seconds=seconds)
        if self._writes_log and access_log.isEnabledFor(logging.INFO):
            fields = {
                "name": access_log.name,
                "levelno": logging.INFO,
                "levelname": "INFO",
                "msg": "request",
                "request_id": request_id,
                "method": method,
                "route": route,
                "status": status,
                "milliseconds": round(seconds * 1000, 3),
                **scope["state"]["log"],
            }
            access_log.handle(logging.makeLogRecord(fields))
        self._metrics.in_flight.dec()

    def _trace(
        self, spans: "Spans", scope: Scope, request_id: str, status: int, began_at: float, seconds: float
    ) -> None:
        route = str(getattr(scope.get("route"), "path_format", "other"))
        if route not in self._traced:
            return
        attributes: dict[str, str | int | float] = {
            "http.request.method": scope["method"],
            "http.route": route,
            "http.response.status_code": status,
            "beamtree.request_id": request_id,
        }
        search: SearchSpan | None = scope["state"].get("span")
        if search is not None:
            attributes |= search.attributes
            attributes["beamtree.write_ms"] = (began_at + seconds - search.ended_at) * 1000
        if "refused" in scope["state"]["log"]:
            attributes["error.type"] = scope["state"]["log"]["refused"]
        spans.record(
            f"{scope['method']} {route}",
            seconds=seconds,
            is_failure=status >= 500,
            headers=scope["headers"],
            attributes=attributes,
        )


def _request_id(scope: Scope) -> str:
    """The id given by the client, if it is well-formed, else a random one."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID.encode():
            text = value.decode("latin-1")
            if _USABLE_REQUEST_ID.fullmatch(text):
                return str(text)
    return f"{random.getrandbits(64):016x}"  # an identifier, not a secret


def _early_error(scope: Scope, connection: GuardedProtocol | None, *, is_last: bool) -> ApiError | None:
    """The error of a request that is answered before it reaches its route, if any."""
    if connection is not None and connection.is_gone:
        return ApiError(CLIENT_HAS_GONE, "client_has_gone", "The client went away before it was answered.")
    if is_last and scope["path"] not in ALWAYS_ANSWERED:
        return _crowded()
    sizes = (len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
    address = len(scope["raw_path"]) + len(scope["query_string"])
    return headers_too_large() if sum(sizes, start=address) > HEADER_BYTES else None


def _crowded() -> ApiError:
    return ApiError(
        503,
        "too_many_connections",
        "Too many clients are connected. Try again in a second.",
        headers={"Retry-After": "1"},
    )


def _stopped() -> ApiError:
    return ApiError(503, "stopped", "The server stopped before it had an answer. Ask again.")
