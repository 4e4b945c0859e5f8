"""Reading JSON bodies within bounds of size and time, and writing JSON."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import Request, Response
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from beamtree.serving.api_error import CLIENT_HAS_GONE, ApiError, invalid_body
from beamtree.serving.settings import ServerSettings
from beamtree.serving.written_answers import json_text

Body = TypeVar("Body")


def json_response(content: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response in JSON; numbers that are not finite become null."""
    return text_response(json_text(content), status=status, headers=headers)


def text_response(text: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response whose body is JSON already."""
    return Response(text, status_code=status, media_type="application/json", headers=headers)


def error_response(error: ApiError) -> Response:
    """The response for an error."""
    return json_response(error.body(), status=error.status, headers=error.headers)


async def read_json(request: Request, body: TypeAdapter[Body], *, settings: ServerSettings) -> Body:
    """The body of a request, validated within the limits; ApiError where it does not arrive, or is invalid."""
    text = await _read_body(request, max_bytes=settings.limits.body, seconds=settings.timeout)
    try:
        return body.validate_json(text, context=settings.limits)
    except ValidationError as error:
        raise invalid_body(error) from None


async def _read_body(request: Request, *, max_bytes: int, seconds: float) -> bytes:
    """The body of a request; 413 where it is too large, 408 where it does not come, 415 where it is not JSON."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(
            415,
            "not_json",
            f"Send the body as application/json; got content type {media_type[:100]!r}.",
            headers={"Connection": "close"},
        )
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > max_bytes):
        raise _too_large(max_bytes)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > max_bytes:
                    raise _too_large(max_bytes)
                parts.append(part)
    except TimeoutError:
        raise ApiError(
            408, "body_too_slow", f"The body did not arrive within {seconds:g} s.", headers={"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise ApiError(CLIENT_HAS_GONE, "client_has_gone", "The client went away before its body arrived.") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(
        413,
        "body_too_large",
        f"A body has at most {max_bytes:,} bytes here. Send fewer requests at once.",
        headers={"Connection": "close"},
    )
