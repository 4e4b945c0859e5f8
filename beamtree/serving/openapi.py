"""The OpenAPI document: what FastAPI derives from the routes, and the bodies, limits, ids and columns of this server.

Bodies are read and validated within bounds of size and time before FastAPI would see them, so their schemas are added
here, by the way that FastAPI documents for extending the document.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from beamtree.data.raw_ids import RawIds
from beamtree.data.vocabulary import Id
from beamtree.serving.limits import ID_CHARACTERS, Limits
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.schemas.catalogue_changes import ItemsBody
from beamtree.serving.schemas.events import EventsBody, ForgetBody
from beamtree.serving.schemas.fields import LIMIT
from beamtree.serving.schemas.infer import HISTORY, InferBody
from beamtree.serving.schemas.recommend_body import RecommendBody
from beamtree.serving.service import Service

REFERENCE = "#/components/schemas/{model}"
MODEL_VERSION = "x-model-version"


def body_of(model: str) -> dict[str, Any]:
    """The part of a route's description that names its JSON body."""
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": REFERENCE.format(model=model)}}},
        }
    }


def describe_interface(app: FastAPI, service: Service) -> dict[str, Any]:
    """The OpenAPI document for the model in service; it is made anew when the model changes."""
    model = service.deployment.current
    if app.openapi_schema is None or app.openapi_schema["info"][MODEL_VERSION] != model.version:
        document = get_openapi(
            title=app.title,
            version=app.version,
            summary="Recommendations by beam search down a learned tree",
            routes=app.routes,
        )
        document["info"][MODEL_VERSION] = model.version
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(_body_schemas())
        _state_limits(schemas, service.settings.limits)
        schemas["ItemId"] = _schema_of(model.ids) | {"examples": _popular(model)}
        schemas["ColumnName"] = {"type": "string", "enum": model.artefact.item_table.columns}
        users = None if service.histories is None else service.histories.users
        if users is not None:
            schemas["UserId"] = _schema_of(users)
        _describe_routes(document, model, user=1 if users is None or users.holds_integers else "u1")
        app.openapi_schema = document
    return app.openapi_schema


def _body_schemas() -> dict[str, Any]:
    bodies = [(body, "validation") for body in (EventsBody, ForgetBody, ItemsBody, InferBody)]
    _, definitions = models_json_schema(bodies, ref_template=REFERENCE)  # type: ignore[arg-type]
    recommend = TypeAdapter(RecommendBody).json_schema(ref_template=REFERENCE)
    return {**definitions["$defs"], **recommend.pop("$defs"), "RecommendBody": recommend}


def _state_limits(schema: Any, limits: Limits) -> None:
    """Write this server's limits into all schemas that name one."""
    if isinstance(schema, list):
        for part in schema:
            _state_limits(part, limits)
    if isinstance(schema, dict):
        if LIMIT in schema:
            schema["maximum" if schema["type"] == "integer" else "maxItems"] = getattr(limits, schema.pop(LIMIT))
        for part in schema.values():
            _state_limits(part, limits)


def _schema_of(ids: RawIds) -> dict[str, Any]:
    if ids.holds_integers:
        return {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
    return {"type": "string", "maxLength": ID_CHARACTERS}


def _popular(model: LoadedModel) -> list[Id]:
    return model.ids.decode(model.catalogue.most_popular[:3])


def _describe_routes(document: dict[str, Any], model: LoadedModel, *, user: Id) -> None:
    """Say what an item id in a path is, and give examples that work. user: an id such as users have."""
    popular, columns = _popular(model), model.catalogue.default_columns
    of_path = _schema_of(model.ids) | ({} if model.ids.holds_integers else {"minLength": 1})
    for path, methods in document["paths"].items():
        for route in methods.values():
            for parameter in route.get("parameters", ()):
                if parameter["name"] == "item_id":
                    parameter.update(schema=of_path, example=popular[0])
            body = route.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None:
                body["example"] = _example(path, popular, user=user, columns=columns)


def _example(path: str, popular: list[Id], *, user: Id, columns: list[str]) -> dict[str, Any]:
    if path == "/v1/events":
        return {"events": [{"user_id": user, "item_id": popular[0]}]}
    if path.endswith("/infer"):
        texts = [str(item) for item in popular]
        return {
            "inputs": [{"name": HISTORY, "shape": [1, len(texts)], "datatype": "BYTES", "data": texts}],
            "parameters": {"k": 5},
        }
    if path == "/admin/forget":
        return {"user_id": user}
    if path == "/admin/items":
        return {"add": [{"item_id": 2**62 if isinstance(popular[0], int) else "a-new-item"}], "remove": []}
    return {"history": popular, "k": 5, "exclude_seen": True, "columns": columns, "explain": True}
