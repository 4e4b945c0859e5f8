"""GET /v1/items: one item, search by text, and similar items."""

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request, Response

from beamtree.errors import InputError
from beamtree.serving.api_error import ApiError, shortened
from beamtree.serving.limits import COLUMNS, FOUND_ITEMS, SEARCH_CHARACTERS
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.routes.error_responses import ITEM_ERRORS, QUERY_ERRORS
from beamtree.serving.schemas.fields import ColumnName, ItemId
from beamtree.serving.schemas.items import ItemAnswer, ItemsAnswer, SimilarAnswer
from beamtree.serving.service import Service
from beamtree.serving.wire import json_response

Columns = Annotated[
    list[ColumnName] | None,
    Query(alias="column", description="columns to return; default: title and category", max_length=COLUMNS),
]
By = Literal["tree", "embedding", "memory", "both"]


def item_routes(service: Service) -> APIRouter:
    """What is known about items."""
    router = APIRouter(tags=["items"])

    @router.get(
        "/v1/items",
        response_model=ItemsAnswer,
        responses=QUERY_ERRORS,
        summary="Search for items by a text in id or title, or look up several by their ids",
    )
    async def find_items(
        request: Request,
        search: Annotated[str, Query(max_length=SEARCH_CHARACTERS, description="empty: the most popular items")] = "",
        limit: Annotated[int, Query(ge=1, le=FOUND_ITEMS, description="how many items a search returns at most")] = 20,
        ids: Annotated[
            list[ItemId] | None,
            Query(
                alias="id", max_length=FOUND_ITEMS, description="only these; with search, those that contain the text"
            ),
        ] = None,
        column: Columns = None,
    ) -> Response:
        model = service.deployment.current
        columns = wanted_columns(model, column)

        def find() -> dict[str, Any]:
            if ids is None:
                return search_items(model, search, limit=limit, columns=columns)
            return look_up_items(model, [str(one) for one in ids], search=search, columns=columns)

        return json_response(await service.look_up(find, connection=request.client))

    @router.get(
        "/v1/items/{item_id:path}/similar",
        response_model=SimilarAnswer,
        responses=ITEM_ERRORS,
        summary="Similar items: in the tree, by their vectors, by what followed what",
    )
    async def similar_items(
        request: Request,
        item_id: ItemId,
        k: Annotated[int, Query(ge=1, le=FOUND_ITEMS)] = 10,
        by: Annotated[By, Query(description="both: by everything that the model has")] = "both",
        column: Columns = None,
    ) -> Response:
        model = service.deployment.current
        columns = wanted_columns(model, column)
        item = find_item(model, str(item_id))
        near = await service.look_up(
            lambda: find_similar(model, item, k=k, by=by, columns=columns), connection=request.client
        )
        return json_response(near)

    @router.get(
        "/v1/items/{item_id:path}", response_model=ItemAnswer, responses=ITEM_ERRORS, summary="Everything about an item"
    )
    async def one_item(item_id: ItemId) -> Response:
        model = service.deployment.current
        return json_response(describe_item(model, find_item(model, str(item_id))))

    return router


def search_items(model: LoadedModel, text: str, *, limit: int, columns: list[str]) -> dict[str, Any]:
    """Items whose id or title contains a text."""
    found, matches = model.catalogue.find(text, limit=limit)
    return {"model_version": model.version, "matches": matches, "items": model.catalogue.rows(found, columns)}


def look_up_items(model: LoadedModel, ids: list[str], *, search: str, columns: list[str]) -> dict[str, Any]:
    """Items by their ids; with a text to search for, those of them that contain it."""
    known, unknown = model.ids.find(ids)
    if search:
        known = known[model.catalogue.holding(search)[known]]
    items = model.catalogue.rows(known, columns)
    return {"model_version": model.version, "matches": len(items), "items": items, "unknown_ids": unknown}


def find_similar(model: LoadedModel, item: int, *, k: int, by: By, columns: list[str]) -> dict[str, Any]:
    """The answer of GET /v1/items/{item_id}/similar; 422 where the model lacks the part that `by` needs."""
    near: dict[str, list[dict[str, Any]] | None] = {"by_tree": None, "by_embedding": None, "by_memory": None}
    if by in ("tree", "both"):
        items, levels = model.similar.in_tree(item, count=k)
        rows = model.catalogue.rows(items, columns)
        near["by_tree"] = [row | {"common_level": level} for row, level in zip(rows, levels, strict=True)]
    kinds = model.similar.kinds if by == "both" else [] if by == "tree" else [by]
    for kind in kinds:
        try:
            items, nearness = model.similar.near(item, count=k, by=kind)
        except InputError as error:
            raise ApiError(422, "no_such_part", str(error)) from None
        rows, name = model.catalogue.rows(items, columns), "similarity" if kind == "embedding" else "strength"
        near[f"by_{kind}"] = [row | {name: value} for row, value in zip(rows, nearness.tolist(), strict=True)]
    return {"model_version": model.version, "item_id": model.ids.decode(np.array([item]))[0], **near}


def describe_item(model: LoadedModel, item: int) -> dict[str, Any]:
    """The answer of GET /v1/items/{item_id}."""
    tree = model.artefact.tree
    leaf = int(tree.leaf_of_item[item])
    columns = [name for name in model.artefact.item_table.columns if name != "item_id"]
    path = [{"level": level, "node": int(tree.ancestors(leaf, level))} for level in range(tree.height + 1)]
    [row] = model.catalogue.rows(np.array([item]), columns)
    return row | {"model_version": model.version, "leaf": leaf, "path": path}


def find_item(model: LoadedModel, text: str) -> int:
    """The dense item that an address names; 422 for a wrong kind of id, 404 for an unknown one."""
    raw = model.ids.parse(text)
    if raw is None:
        raise ApiError(
            422,
            "wrong_id_type",
            f"The item ids of this model are {model.ids.kind}, got {shortened(text)}.",
            details=[text],
        )
    item = int(model.ids.encode([raw])[0])
    if item < 0:
        raise ApiError(404, "unknown_item", f"The model does not know the item {shortened(raw)}.", details=[raw])
    return item


def wanted_columns(model: LoadedModel, asked: list[str] | None) -> list[str]:
    """The asked columns, or title and category; 422 for one that does not exist."""
    if asked is None:
        return model.catalogue.default_columns
    model.catalogue.check_columns(asked)
    return asked
