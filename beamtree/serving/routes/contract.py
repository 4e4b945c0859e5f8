"""What routes promise beyond what FastAPI finds out by itself: bodies, refusals, limits."""

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from beamtree.data.raw_ids import RawIds
from beamtree.data.vocabulary import Id
from beamtree.serving.api_error import ApiError
from beamtree.serving.histories import Histories
from beamtree.serving.infer_schemas import INPUT, InferBody
from beamtree.serving.limits import COLUMNS, Limits
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.schemas import ErrorAnswer, EventsBody, ForgetBody, ItemsBody, RecommendBody

Responses = dict[int | str, dict[str, Any]]
REFERENCE = "#/components/schemas/{model}"


def _refused(**reasons: str) -> Responses:
    return {
        int(status.removeprefix("_")): {"model": ErrorAnswer, "description": reason}
        for status, reason in reasons.items()
    }


JSON_BODY_ERRORS = _refused(
    _400="The body is not JSON",
    _408="The body came too slowly",
    _413="The body is too large",
    _415="The body is not application/json",
    _422="The body does not fit: unknown or faulty fields, limits, ids of the wrong type, unknown ids if so asked",
)
SEARCH_ERRORS = _refused(_503="Too many requests wait, or no answer in time: try again after Retry-After seconds")
ITEM_ERRORS = _refused(_404="The model does not know this item", _422="A parameter cannot be used") | SEARCH_ERRORS
NODE_ERRORS = _refused(_404="The tree has no such node", _422="A parameter cannot be used") | SEARCH_ERRORS
QUERY_ERRORS = _refused(_422="A parameter cannot be used") | SEARCH_ERRORS
ADMIN_ERRORS = _refused(
    _401="The token is missing or wrong", _409="The model was refused, or there is none to go back to"
)


def at_most(number: int, limit: int, *, what: str, field: str) -> None:
    """422 that names the limit which a request exceeds."""
    if number > limit:
        raise ApiError(
            422,
            "limit_exceeded",
            f"{field}: at most {limit:,} {what} are allowed here, got {number:,}.",
            details=[{"field": field, "limit": limit, "got": number}],
        )


def body_of(model: str) -> dict[str, Any]:
    """The part of a route's description that names its JSON body."""
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": REFERENCE.format(model=model)}}},
        }
    }


def add_bodies(document: dict[str, Any], *, limits: Limits, model: LoadedModel, histories: Histories | None) -> None:
    """Add the schemas of the JSON bodies to an OpenAPI document, with this server's limits and this model's ids."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    _, definitions = models_json_schema(
        [(body, "validation") for body in (EventsBody, ForgetBody, ItemsBody, InferBody)], ref_template=REFERENCE
    )
    schemas.update(definitions["$defs"])
    either = TypeAdapter(RecommendBody).json_schema(ref_template=REFERENCE)
    schemas.update(either.pop("$defs"))
    schemas["RecommendBody"] = either
    asked = schemas["Recommend"]["properties"]
    inferred = schemas["InferParameters"]["properties"]
    asked["k"]["maximum"] = inferred["k"]["maximum"] = limits.k
    _longest(asked["history"], limits.history)
    _longest(asked["exclude"], limits.ids)
    _longest(schemas["Allow"]["properties"]["ids"], limits.ids)
    schemas["RecommendMany"]["properties"]["requests"]["maxItems"] = limits.batch
    schemas["EventsBody"]["properties"]["events"]["maxItems"] = limits.events
    for change in schemas["ItemsBody"]["properties"].values():
        _longest(change, limits.items)
    _bound_tensor(schemas["InferInput"]["properties"], rows=limits.batch, length=limits.history)
    for choice in asked["beam"]["anyOf"] + inferred["beam"]["anyOf"]:
        if choice["type"] == "integer":
            choice["minimum"] = choice.pop("ge", 1)
            choice["maximum"] = limits.beam
    _tell_what_must_be_given(schemas)
    users = None if histories is None else histories.users
    if users is not None:
        _only(schemas, "UserId", users)
    _tell_about(model, document, user=1 if users is None or users.holds_integers else "u1")


def _bound_tensor(tensor: dict[str, Any], *, rows: int, length: int) -> None:
    """The most rows, and elements of a row, of the input tensor and of its data."""
    for size, limit in zip(tensor["shape"]["prefixItems"], (rows, length), strict=True):
        size.update(minimum=size.pop("ge"), maximum=limit)
    flat, nested = tensor["data"]["anyOf"]
    flat["maxItems"] = rows * length
    nested["maxItems"], nested["items"]["maxItems"] = rows, length


def _tell_what_must_be_given(schemas: dict[str, Any]) -> None:
    """Either history or user_id, of which the other may be null."""
    asked = schemas["Recommend"]
    either = []
    for name, other in (("history", "user_id"), ("user_id", "history")):
        [given] = [choice for choice in asked["properties"][name]["anyOf"] if choice.get("type") != "null"]
        either.append({"required": [name], "properties": {name: given, other: {"type": "null"}}})
    asked["oneOf"] = either


def _tell_about(model: LoadedModel, document: dict[str, Any], *, user: Id) -> None:
    """Which ids and columns there are, with examples that work. user: an id such as users have."""
    schemas = document["components"]["schemas"]
    popular = model.ids.decode(model.catalogue.most_popular[:3])
    id_type = _only(schemas, "ItemId", model.ids)
    schemas["ItemId"]["examples"] = popular
    schemas["ColumnName"] = {"type": "string", "enum": model.artefact.item_table.columns}
    for path, methods in document["paths"].items():
        for route in methods.values():
            for parameter in route.get("parameters", ()):
                if parameter["name"] == "item_id":
                    parameter["schema"] = {
                        key: value for key, value in schemas["ItemId"].items() if key not in ("examples", "title")
                    } | ({"minLength": 1} if id_type == "string" else {})
                    parameter["example"] = popular[0]
                if parameter["name"] == "column":
                    names = {"$ref": REFERENCE.format(model="ColumnName")}
                    parameter["schema"] = {"type": "array", "items": names, "maxItems": COLUMNS}
            body = route.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None:
                body["example"] = _example(path, popular, user=user, columns=model.catalogue.default_columns)


def _only(schemas: dict[str, Any], name: str, ids: RawIds) -> str:
    """Narrow the schema of an id to the type that these ids have, and return that."""
    wanted = "integer" if ids.holds_integers else "string"
    [schemas[name]] = [choice for choice in schemas[name]["anyOf"] if choice["type"] == wanted]
    return wanted


def _example(path: str, popular: list[Id], *, user: Id, columns: list[str]) -> dict[str, Any]:
    if path == "/v1/events":
        return {"events": [{"user_id": user, "item_id": popular[0]}]}
    if path.endswith("/infer"):
        texts = [str(item) for item in popular]
        return {
            "inputs": [{"name": INPUT, "shape": [1, len(texts)], "datatype": "BYTES", "data": texts}],
            "parameters": {"k": 5},
        }
    if path == "/admin/forget":
        return {"user_id": user}
    if path == "/admin/items":
        return {"add": [{"item_id": 2**62 if isinstance(popular[0], int) else "a-new-item"}], "remove": []}
    return {"history": popular, "k": 5, "exclude_seen": True, "columns": columns, "explain": True}


def _longest(schema: dict[str, Any], limit: int) -> None:
    for choice in schema.get("anyOf", [schema]):
        if choice.get("type") == "array":
            choice["maxItems"] = limit
