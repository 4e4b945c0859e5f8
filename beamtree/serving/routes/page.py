"""The page and the documentation of the interface: the files of page/dist, kept in memory."""

import hashlib
import mimetypes
from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import APIRouter, Request, Response

POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"
ADDRESSES = {"index.html": "/", "docs.html": "/docs"}


def page_routes(folder: Path) -> APIRouter:
    """A route for each file of a folder; none where there is no such folder."""
    router = APIRouter(include_in_schema=False)
    for file in sorted(folder.glob("*")):
        address = ADDRESSES.get(file.name, f"/{file.name}")
        router.add_api_route(address, _send(file), methods=["GET", "HEAD"])
    return router


def _send(file: Path) -> Callable[[Request], Awaitable[Response]]:
    """Answers with a file that may load nothing from other sites; a browser asks each time whether it has changed."""
    content = file.read_bytes()
    media_type, _ = mimetypes.guess_type(file.name)
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Security-Policy": POLICY}

    async def send(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return send
