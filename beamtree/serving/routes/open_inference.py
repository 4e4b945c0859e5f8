"""The Open Inference Protocol (v2) over REST, as KServe, Triton and MLServer speak it: /v2.

A history is a row of the BYTES tensor `history`; shorter histories of a batch are padded with "". Features of a row's
user and context are JSON objects in the BYTES tensors `user_features` and `context`. From there on a call is a
POST /v1/recommend: the same limits, queue and errors, in the same shape.
"""

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter

from beamtree.data.raw_ids import RawIds
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.openapi import body_of
from beamtree.serving.routes.error_responses import JSON_BODY_ERRORS, SEARCH_ERRORS
from beamtree.serving.routes.recommend import search_for
from beamtree.serving.schemas.infer import (
    CONTEXT,
    HISTORY,
    USER_FEATURES,
    InferAnswer,
    InferBody,
    ModelMetadata,
    ServerLive,
    ServerMetadata,
    ServerReady,
)
from beamtree.serving.schemas.recommend_body import Recommend
from beamtree.serving.service import Service
from beamtree.serving.tensors import OUTPUTS, join_tensors, read_features, read_histories, write_rows
from beamtree.serving.wire import json_response, read_json, text_response

infer_body = TypeAdapter(InferBody)


def open_inference_routes(service: Service) -> APIRouter:
    """Health, metadata and inference for the one model of this server."""
    router = APIRouter(tags=["open inference protocol"])
    settings = service.settings
    address = f"/v2/models/{settings.model_name}"

    @router.get("/v2", response_model=ServerMetadata, summary="Name and version of the server")
    async def server() -> Response:
        return json_response({"name": "beamtree", "version": version("beamtree"), "extensions": []})

    @router.get("/v2/health/live", response_model=ServerLive, summary="The process answers")
    async def live() -> Response:
        return json_response({"live": True})

    @router.get(
        "/v2/health/ready",
        response_model=ServerReady,
        responses={503: {"model": ServerReady, "description": "The server is stopping"}},
        summary="Ready for requests",
    )
    async def ready() -> Response:
        return json_response({"ready": not service.is_stopping()}, status=503 if service.is_stopping() else 200)

    @router.get(address, response_model=ModelMetadata, summary="The tensors that the model takes and gives")
    async def model() -> Response:
        return json_response(describe(service.deployment.current, name=settings.model_name))

    @router.get(
        f"{address}/ready",
        response_model=ServerReady,
        responses={503: {"model": ServerReady, "description": "The server is stopping"}},
        summary="Ready for requests to the model",
    )
    async def model_ready() -> Response:
        return await ready()

    @router.post(
        f"{address}/infer",
        response_model=InferAnswer,
        responses=JSON_BODY_ERRORS | SEARCH_ERRORS,
        openapi_extra=body_of("InferBody"),
        summary="Recommend items for a batch of histories, as tensors",
    )
    async def infer(request: Request) -> Response:
        await service.searches.refuse_if_full()
        asked = await read_json(request, infer_body, settings=settings)
        model = service.deployment.current
        requests = requests_of(asked, ids=model.ids)
        wanted = [output.name for output in asked.outputs] if asked.outputs else list(OUTPUTS)
        done = await search_for(service, request, requests, model=model, write=write_rows)
        head: dict[str, Any] = {"model_name": settings.model_name, "model_version": model.version}
        head |= {} if asked.id is None else {"id": asked.id}
        return text_response(join_tensors(head, done.result, wanted=wanted, k=requests[0].k))

    return router


def describe(model: LoadedModel, *, name: str) -> dict[str, Any]:
    """The answer of GET /v2/models/NAME; -1 stands for any size."""
    read = model.artefact.request_features
    columns = {HISTORY: -1} | ({USER_FEATURES: 1} if read.user else {}) | ({CONTEXT: 1} if read.context else {})
    return {
        "name": name,
        "versions": [model.version],
        "platform": "beamtree",
        "inputs": [{"name": tensor, "datatype": "BYTES", "shape": [-1, width]} for tensor, width in columns.items()],
        "outputs": [
            {"name": output, "datatype": tensor.datatype, "shape": [-1] * tensor.dimensions}
            for output, tensor in OUTPUTS.items()
        ],
    }


def requests_of(asked: InferBody, *, ids: RawIds) -> list[Recommend]:
    """A request for each row of the input tensors; ApiError where a tensor does not have the shape that it states."""
    options = asked.parameters.model_dump(include=set(Recommend.model_fields), exclude_unset=True)
    tensors = {tensor.name: (place, tensor) for place, tensor in enumerate(asked.inputs)}
    place, tensor = tensors.pop("history")
    histories = read_histories(tensor, place=place, ids=ids)
    rows: list[dict[str, Any]] = [{HISTORY: history} for history in histories]
    for name, (place, tensor) in tensors.items():
        for row, values in zip(rows, read_features(tensor, place=place, num_rows=len(rows)), strict=True):
            row[name] = values
    return [Recommend(**row, **options) for row in rows]
