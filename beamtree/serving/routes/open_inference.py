"""The Open Inference Protocol (v2) over REST, as KServe, Triton and MLServer speak it: /v2.

A history is a row of the BYTES tensor `history`; shorter histories of a batch are filled up with "". From there on a
call is treated as POST /v1/recommend treats it: the same limits, queue and refusals, in the same shape.
"""

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from beamtree.data.raw_ids import RawIds
from beamtree.serving.api_error import unusable
from beamtree.serving.infer_schemas import (
    INPUT,
    InferAnswer,
    InferBody,
    ModelMetadata,
    ServerLive,
    ServerMetadata,
    ServerReady,
)
from beamtree.serving.limits import Limits
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.routes.contract import JSON_BODY_ERRORS, SEARCH_ERRORS, at_most, body_of
from beamtree.serving.routes.recommend import search_for
from beamtree.serving.schemas import Recommend
from beamtree.serving.service import Service
from beamtree.serving.tensors import OUTPUTS, join_tensors, read_histories, write_rows
from beamtree.serving.wire import json_response, read_body, text_response


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
        return json_response({"ready": not service.is_stopping}, status=503 if service.is_stopping else 200)

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
        body = await read_body(request, max_bytes=settings.limits.body_bytes, seconds=settings.timeout_seconds)
        try:
            asked = InferBody.model_validate_json(body)
        except ValidationError as error:
            raise unusable(error) from None
        model = service.deployment.current
        requests = understand(asked, ids=model.ids, limits=settings.limits)
        wanted = [output.name for output in asked.outputs] if asked.outputs else list(OUTPUTS)
        done = await search_for(service, request, requests, model=model, write=write_rows)
        head: dict[str, Any] = {"model_name": settings.model_name, "model_version": model.version}
        head |= {} if asked.id is None else {"id": asked.id}
        return text_response(join_tensors(head, done.result, wanted=wanted, k=requests[0].k))

    return router


def describe(model: LoadedModel, *, name: str) -> dict[str, Any]:
    """The answer of GET /v2/models/NAME; -1 stands for any size."""
    return {
        "name": name,
        "versions": [model.version],
        "platform": "beamtree",
        "inputs": [{"name": INPUT, "datatype": "BYTES", "shape": [-1, -1]}],
        "outputs": [
            {"name": output, "datatype": tensor.datatype, "shape": [-1] * tensor.dimensions}
            for output, tensor in OUTPUTS.items()
        ],
    }


def understand(asked: InferBody, *, ids: RawIds, limits: Limits) -> list[Recommend]:
    """A request for each row of the input tensor; ApiError where the tensor is not of the shape that it states."""
    options = asked.parameters.model_dump(include=set(Recommend.model_fields), exclude_unset=True)
    [tensor] = asked.inputs
    at_most(tensor.shape[0], limits.batch, what="histories in one call", field="inputs[0].shape[0]")
    at_most(tensor.shape[1], limits.history, what="items of a history", field="inputs[0].shape[1]")
    return [Recommend(history=history, **options) for history in read_histories(tensor, ids=ids)]
