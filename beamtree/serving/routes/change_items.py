"""POST /admin/items: add items to the served catalogue and remove others. It exists only where a token is set."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from polars.exceptions import PanicException, PolarsError
from pydantic import TypeAdapter

from beamtree.artefact import Artefact, manifest_version, save_artefact
from beamtree.catalogue.change import CatalogueChange, change_catalogue
from beamtree.catalogue.folder import claimed_for_update
from beamtree.catalogue.item_rows import rows_of_values
from beamtree.errors import ArtefactError, FolderInUse, IdTypeError, InputError, UnknownIdsError
from beamtree.serving.api_error import ApiError, wrong_id_type
from beamtree.serving.deployment import Deployment
from beamtree.serving.limits import SHOWN_IDS
from beamtree.serving.loaded_model import LoadedModel, assemble
from beamtree.serving.openapi import body_of
from beamtree.serving.routes.admin import check_token, describe_served
from beamtree.serving.routes.error_responses import ADMIN_ERRORS, JSON_BODY_ERRORS
from beamtree.serving.schemas.catalogue_changes import ItemsBody, ItemsChangedAnswer
from beamtree.serving.service import Service
from beamtree.serving.trial import try_model
from beamtree.serving.wire import json_response, read_json
from beamtree.storage import read_manifest

items_body = TypeAdapter(ItemsBody)


def change_items_routes(service: Service) -> APIRouter:
    """Changes of the catalogue, with the admin token."""
    router = APIRouter(tags=["admin"])
    settings = service.settings

    @router.post(
        "/admin/items",
        response_model=ItemsChangedAnswer,
        responses=ADMIN_ERRORS | JSON_BODY_ERRORS,
        openapi_extra=body_of("ItemsBody"),
        summary="Add items to the catalogue and remove others, without training",
    )
    async def change_items(request: Request) -> Response:
        check_token(request, settings.admin_token)
        asked = await read_json(request, items_body, settings=settings)
        done, changed = await asyncio.to_thread(_change, service.deployment, asked, folder=settings.model)
        tree = done.artefact.tree
        answer = describe_served(service, changed=changed) | {
            "added": done.added,
            "reinstated": done.reinstated,
            "removed": done.removed,
            "items": tree.num_present,
            "leaves": tree.num_leaves,
        }
        return json_response(answer)

    return router


def _change(deployment: Deployment, asked: ItemsBody, *, folder: Path) -> tuple[CatalogueChange, bool]:
    """Change the catalogue, on disk and in service; ApiError, and nothing changed, where that is not possible."""
    changes: list[CatalogueChange] = []

    def make(model: LoadedModel) -> LoadedModel:
        changes.append(_changed_catalogue(model, asked))
        artefact = changes[-1].artefact
        return model if artefact is model.artefact else _saved(artefact, folder=folder)

    try:
        with claimed_for_update(folder):
            changed = deployment.change(make)
    except IdTypeError as error:
        raise wrong_id_type(error) from None
    except UnknownIdsError as error:
        raise ApiError(422, "unknown_ids", str(error), details=error.ids[:SHOWN_IDS]) from None
    except FolderInUse as error:
        message = str(error).replace(str(folder), "the model folder")
        raise ApiError(409, "being_updated", message, headers={"Retry-After": "1"}) from None
    except InputError as error:
        raise ApiError(422, "invalid_items", str(error)) from None
    except ArtefactError as error:
        message = str(error).replace(str(folder), "the model folder")
        raise ApiError(409, "model_refused", f"{message} Nothing was changed.") from None
    return changes[-1], changed


def _changed_catalogue(model: LoadedModel, asked: ItemsBody) -> CatalogueChange:
    like = model.artefact.item_table
    items: list[dict[str, Any]] = [{"item_id": item.item_id, **(item.model_extra or {})} for item in asked.add]
    model.ids.check([item["item_id"] for item in items], what="add")
    try:
        table = rows_of_values(items, like=like) if items else None
        return change_catalogue(model.artefact, add=table, remove=asked.remove)
    except (PolarsError, PanicException) as error:  # how polars fails on unexpected values
        raise InputError(f"The new items cannot be used: {error}.") from None


def _saved(artefact: Artefact, *, folder: Path) -> LoadedModel:
    """Build and try a changed model, then write it: what cannot be served never gets to the disk."""
    model = assemble(artefact)
    try_model(model, directory=folder)
    save_artefact(folder, artefact)
    return replace(model, artefact=replace(artefact, version=manifest_version(read_manifest(folder))))
