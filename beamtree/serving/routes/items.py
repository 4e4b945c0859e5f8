"""GET /v1/items: one item, search by text, and similar items."""

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import StringConstraints

from beamtree.errors import InputError
from beamtree.retrieval.similar import Similarity
from beamtree.serving.api_error import ApiError, shortened
from beamtree.serving.limits import COLUMNS, FOUND_ITEMS, ID_CHARACTERS, SEARCH_CHARACTERS
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.routes.contract import ITEM_ERRORS, QUERY_ERRORS
from beamtree.serving.schemas import ItemAnswer, ItemsAnswer, SimilarAnswer
from beamtree.serving.service import Service
from beamtree.serving.wire import json_response

AddressId = Annotated[str, StringConstraints(max_length=ID_CHARACTERS)]
"""An id in an address; which of them are integers is up to the model."""
Columns = Annotated[
    list[str] | None,
    Query(alias="column", description="columns to return; default: title and category", max_length=COLUMNS),
]


def item_routes(service: Service) -> APIRouter:
    """What is known about items."""
    router = APIRouter(tags=["items"])

    @router.get(
        "/v1/items",
        response_model=ItemsAnswer,
        responses=QUERY_ERRORS,
        summary="Find items by a text in id or title, or look up several by their ids",
    )
    async def find_items(
        request: Request,
        search: Annotated[str, Query(max_length=SEARCH_CHARACTERS, description="empty: the most popular items")] = "",
        limit: Annotated[int, Query(ge=1, le=FOUND_ITEMS, description="the most that a search returns")] = 20,
        ids: Annotated[
            list[AddressId] | None,
            Query(alias="id", max_length=FOUND_ITEMS, description="only these; with search, those that hold the text"),
        ] = None,
        column: Columns = None,
    ) -> Response:
        model = service.deployment.current
        columns = wanted_columns(model, column)

        def look_up(ids: list[str]) -> dict[str, Any]:
            known, unknown = model.ids.find(ids)
            if search:
                known = known[model.catalogue.holding(search)[known]]
            items = model.catalogue.rows(known, columns)
            return {"model_version": model.version, "matches": len(items), "items": items, "unknown_ids": unknown}

        def find() -> dict[str, Any]:
            found, matches = model.catalogue.find(search, limit=limit)
            return {
                "model_version": model.version,
                "matches": matches,
                "items": model.catalogue.rows(found, columns),
            }

        call = find if ids is None else lambda: look_up(ids)
        return json_response(await service.look_up(call, connection=request.client))

    @router.get(
        "/v1/items/{item_id:path}/similar",
        response_model=SimilarAnswer,
        responses=ITEM_ERRORS,
        summary="Items near an item: in the tree, by their vectors, by what followed what",
    )
    async def similar_items(
        request: Request,
        item_id: AddressId,
        k: Annotated[int, Query(ge=1, le=FOUND_ITEMS)] = 10,
        by: Annotated[
            Literal["tree", "embedding", "memory", "both"],
            Query(description="both: by everything that the model has"),
        ] = "both",
        column: Columns = None,
    ) -> Response:
        model = service.deployment.current
        columns = wanted_columns(model, column)
        item = find_item(model, item_id)

        def look_around() -> dict[str, Any]:
            near: dict[str, list[dict[str, Any]] | None] = {"by_tree": None, "by_embedding": None, "by_memory": None}
            if by in ("tree", "both"):
                items, levels = model.similar.in_tree(item, count=k)
                rows = model.catalogue.rows(items, columns)
                near["by_tree"] = [row | {"common_level": level} for row, level in zip(rows, levels, strict=True)]
            for kind in model.similar.kinds if by == "both" else ():
                near[f"by_{kind}"] = neighbours(kind)
            if by in ("embedding", "memory"):
                near[f"by_{by}"] = neighbours(by)
            return {
                "model_version": model.version,
                "item_id": model.ids.decode(np.array([item]))[0],
                **near,
            }

        def neighbours(kind: Similarity) -> list[dict[str, Any]]:
            try:
                items, nearness = model.similar.near(item, count=k, by=kind)
            except InputError as error:
                raise ApiError(422, "no_such_part", str(error)) from None
            rows = model.catalogue.rows(items, columns)
            name = "similarity" if kind == "embedding" else "strength"
            return [row | {name: value} for row, value in zip(rows, nearness.tolist(), strict=True)]

        return json_response(await service.look_up(look_around, connection=request.client))

    @router.get(
        "/v1/items/{item_id:path}", response_model=ItemAnswer, responses=ITEM_ERRORS, summary="Everything about an item"
    )
    async def one_item(item_id: AddressId) -> Response:
        model = service.deployment.current
        item = find_item(model, item_id)
        tree = model.artefact.tree
        leaf = int(tree.leaf_of_item[item])
        columns = [name for name in model.artefact.item_table.columns if name != "item_id"]
        path = [{"level": level, "node": int(tree.ancestors(leaf, level))} for level in range(tree.height + 1)]
        [row] = model.catalogue.rows(np.array([item]), columns)
        return json_response(row | {"model_version": model.version, "leaf": leaf, "path": path})

    return router


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
