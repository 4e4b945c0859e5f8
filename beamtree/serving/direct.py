"""A short way to the routes that are asked most: FastAPI describes them, but does not stand in between."""

from collections.abc import Awaitable, Callable, Sequence

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from beamtree.serving.api_error import ApiError

Refuse = Callable[[Request, ApiError], Awaitable[Response]]


class Direct:
    """ASGI wrapper: hands requests for some routes to their endpoints at once, and all others to the application.

    Each of these routes has a fixed address, and its endpoint takes the request and nothing else. They stay routes of
    the application too, which documents them and refuses other methods.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute], refuse: Refuse) -> None:
        self._app = app
        self._refuse = refuse
        self._routes = {
            (method, route.path): route
            for route in routes
            if isinstance(route, APIRoute)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive)
        try:
            response = await route.endpoint(request)
        except ApiError as refusal:
            response = await self._refuse(request, refusal)
        await response(scope, receive, send)
