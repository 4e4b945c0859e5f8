"""POST /v1/recommend."""

import time
from collections.abc import Sequence
from typing import Protocol, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from beamtree.serving.api_error import unusable
from beamtree.serving.limits import Limits
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.pool import Done
from beamtree.serving.routes.contract import JSON_BODY_ERRORS, SEARCH_ERRORS, at_most, body_of
from beamtree.serving.schemas import Recommend, RecommendAnswer, RecommendMany, recommend_body
from beamtree.serving.service import SearchSpan, Service, Write
from beamtree.serving.wire import read_body, text_response
from beamtree.serving.work import works_of
from beamtree.serving.written_answers import join_answers, write_answers


class CountedAnswer(Protocol):
    """What is counted of an answer."""

    @property
    def is_fallback(self) -> bool:
        """Whether it holds popular items."""
        ...

    @property
    def unknown_ids(self) -> int:
        """How many ids of the request the model has never seen."""
        ...


Counted = TypeVar("Counted", bound=CountedAnswer)


def recommend_routes(service: Service) -> APIRouter:
    """Recommendations for histories and users."""
    router = APIRouter(tags=["recommend"])
    settings = service.settings

    @router.post(
        "/v1/recommend",
        response_model=RecommendAnswer,
        responses=JSON_BODY_ERRORS | SEARCH_ERRORS,
        openapi_extra=body_of("RecommendBody"),
        summary="Recommend items for one or many histories",
    )
    async def recommend(request: Request) -> Response:
        await service.searches.refuse_if_full()
        body = await read_body(request, max_bytes=settings.limits.body_bytes, seconds=settings.timeout_seconds)
        try:
            asked = recommend_body.validate_json(body)
        except ValidationError as error:
            raise unusable(error) from None
        requests = asked.requests if isinstance(asked, RecommendMany) else [asked]
        model = service.deployment.current
        done = await search_for(service, request, requests, model=model, write=write_answers)
        return text_response(
            join_answers(
                done.result,
                model_version=model.version,
                milliseconds={"queue": round(done.waited * 1000, 3), "search": round(done.ran * 1000, 3)},
            )
        )

    return router


async def search_for(
    service: Service, request: Request, requests: Sequence[Recommend], *, model: LoadedModel, write: Write[Counted]
) -> Done[list[Counted]]:
    """Check a call against the limits, search for it, and note it in metrics and log; ApiError where it is refused."""
    check_limits(requests, service.settings.limits)
    service.watermarks.refuse_heavy(requests)
    done = await service.recommend(model, requests, write=write, connection=request.client)
    service.metrics.recommendations.inc(len(done.result))
    service.metrics.fallbacks.inc(sum(answer.is_fallback for answer in done.result))
    service.metrics.unknown_ids.inc(sum(answer.unknown_ids for answer in done.result))
    if service.spans is not None:
        request.scope["state"]["span"] = SearchSpan(
            ended_at=time.perf_counter(),
            attributes={
                "beamtree.model_version": model.version,
                "beamtree.requests": len(requests),
                "beamtree.work": sum(works_of(model, requests)),
                "beamtree.waited_ms": done.waited * 1000,
                "beamtree.search_ms": done.ran * 1000,
            },
        )
    said = request.scope["state"]["log"]
    said["model_version"], said["requests"] = model.version, len(requests)
    if service.settings.log_histories:
        said["people"] = [one.model_dump(include={"history", "user_id"}, exclude_none=True) for one in requests]
    return done


def check_limits(requests: Sequence[Recommend], limits: Limits) -> None:
    """422 that names the limit which a request exceeds."""
    at_most(len(requests), limits.batch, what="requests in one call", field="requests")
    at_most(
        sum(request.explain for request in requests), limits.explained, what="explanations in one call", field="explain"
    )
    for number, request in enumerate(requests):
        place = f"requests[{number}]." if len(requests) > 1 else ""
        at_most(request.k, limits.k, what="items", field=f"{place}k")
        at_most(request.beam or 0, limits.beam, what="nodes per level", field=f"{place}beam")
        at_most(len(request.history or ()), limits.history, what="items of a history", field=f"{place}history")
        at_most(len(request.exclude), limits.ids, what="ids", field=f"{place}exclude")
        if request.allow is not None:
            at_most(len(request.allow.ids or ()), limits.ids, what="ids", field=f"{place}allow.ids")
