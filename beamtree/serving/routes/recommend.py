"""POST /v1/recommend."""

import time
from collections.abc import Sequence
from typing import TypeVar

from fastapi import APIRouter, Request, Response

from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.openapi import body_of
from beamtree.serving.pool import Done
from beamtree.serving.routes.error_responses import JSON_BODY_ERRORS, SEARCH_ERRORS
from beamtree.serving.schemas.recommend_answer import RecommendAnswer
from beamtree.serving.schemas.recommend_body import Recommend, RecommendMany, recommend_body
from beamtree.serving.service import SearchSpan, Service, Write
from beamtree.serving.wire import read_json, text_response
from beamtree.serving.work import works_of
from beamtree.serving.written_answers import Counted, join_answers, write_answers

Answer = TypeVar("Answer", bound=Counted)


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
        asked = await read_json(request, recommend_body, settings=settings)
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
    service: Service, request: Request, requests: Sequence[Recommend], *, model: LoadedModel, write: Write[Answer]
) -> Done[list[Answer]]:
    """Search for a call, and record it in metrics and log; ApiError where it cannot be answered."""
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
    fields = request.scope["state"]["log"]
    fields["model_version"], fields["requests"] = model.version, len(requests)
    if service.settings.log_histories:
        fields["people"] = [one.model_dump(include={"history", "user_id"}, exclude_none=True) for one in requests]
    return done
