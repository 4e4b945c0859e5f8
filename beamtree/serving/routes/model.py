"""GET /v1/model and the nodes of its tree."""

from datetime import UTC, datetime
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response

from beamtree.data.columns import CATEGORY
from beamtree.retrieval.request import DEFAULT_K
from beamtree.serving.api_error import ApiError
from beamtree.serving.catalogue import count_values
from beamtree.serving.limits import NAMED_BRANCHES, SAMPLED_ITEMS
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.routes.error_responses import NODE_ERRORS, QUERY_ERRORS
from beamtree.serving.schemas.model import BranchesAnswer, ModelAnswer, NodeAnswer
from beamtree.serving.service import Service
from beamtree.serving.wire import json_response

SHOWN_VALUES = 5
CHILD_SAMPLE = 3
LARGEST_NUMBER = 2**31 - 1


def model_routes(service: Service) -> APIRouter:
    """The current model and its tree."""
    router = APIRouter(tags=["model"])

    @router.get("/v1/model", response_model=ModelAnswer, summary="The model in service, its tree, settings and limits")
    async def model() -> Response:
        return json_response(describe_model(service.deployment.current, service=service))

    @router.get(
        "/v1/tree/nodes/{level}/{node}",
        response_model=NodeAnswer,
        responses=NODE_ERRORS,
        summary="A node of the tree: its children, what is below it, its path to the root",
    )
    async def tree_node(
        request: Request,
        level: Annotated[int, Path(ge=0, le=LARGEST_NUMBER, description="0 is the root", examples=[1])],
        node: Annotated[int, Path(ge=0, le=LARGEST_NUMBER, description="from 0, left to right", examples=[0])],
        sample: Annotated[int, Query(ge=0, le=SAMPLED_ITEMS, description="how many items below to show")] = 10,
    ) -> Response:
        model = service.deployment.current
        tree = model.artefact.tree
        if level > tree.height or node >= tree.level_sizes[level]:
            raise ApiError(
                404,
                "no_such_node",
                f"The tree has levels 0 to {tree.height}"
                + (f", level {level} the nodes 0 to {tree.level_sizes[level] - 1:,}" if level <= tree.height else "")
                + f"; got level {level}, node {node}.",
            )
        described = await service.look_up(
            lambda: describe_node(model, level, node, sample=sample), connection=request.client
        )
        return json_response(described)

    @router.get(
        "/v1/tree/branches",
        response_model=BranchesAnswer,
        responses=QUERY_ERRORS,
        summary="The branches on the upper levels of the tree, each with a name",
    )
    async def upper_branches(
        request: Request,
        per_level: Annotated[
            int, Query(ge=1, le=NAMED_BRANCHES, description="only levels with at most this many nodes")
        ] = 16,
    ) -> Response:
        model = service.deployment.current
        named = await service.look_up(
            lambda: {"model_version": model.version, "branches": name_branches(model, per_level=per_level)},
            connection=request.client,
        )
        return json_response(named)

    return router


def describe_model(model: LoadedModel, *, service: Service) -> dict[str, Any]:
    """The answer of GET /v1/model."""
    artefact, tree = model.artefact, model.artefact.tree
    return {
        "model_version": model.version,
        "loaded_at": datetime.fromtimestamp(model.loaded_at, UTC).isoformat(timespec="seconds"),
        "id_type": "integer" if model.ids.holds_integers else "text",
        "items": tree.num_present,
        "history_length": model.history_length,
        "tree": {
            "branching": tree.branching,
            "height": tree.height,
            "leaves": tree.num_leaves,
            "nodes": tree.num_nodes,
            "level_sizes": tree.level_sizes.tolist(),
        },
        "defaults": {
            "k": DEFAULT_K,
            "beam": artefact.config.retrieval.beam_width,
            "exclude_seen": artefact.config.retrieval.excludes_seen,
        },
        "limits": service.settings.limits.model_dump(),
        "columns": model.columns,
        "features": model.features,
        "metrics": artefact.metrics,
        "training": artefact.training,
        "users": service.histories is not None,
        "events": service.events is not None,
    }


def describe_node(model: LoadedModel, level: int, node: int, *, sample: int) -> dict[str, Any]:
    """The answer of GET /v1/tree/nodes/{level}/{node}."""
    tree = model.artefact.tree
    first, _ = tree.leaf_ranges(node, level)
    path = [{"level": above, "node": int(tree.ancestors(first, above))} for above in range(level + 1)]
    children: list[dict[str, Any]] = []
    if level < tree.height:
        first_child, end_child = tree.child_ranges(node, level)
        children = [
            summarise_node(model, level + 1, child, sample=min(sample, CHILD_SAMPLE))
            for child in range(int(first_child), int(end_child))
        ]
    return summarise_node(model, level, node, sample=sample) | {
        "model_version": model.version,
        "is_leaf": level == tree.height,
        "path": path,
        "children": children,
    }


def name_branches(model: LoadedModel, *, per_level: int) -> list[dict[str, Any]]:
    """Level, node, name and number of items of the nodes on all levels with at most `per_level` nodes."""
    tree, occupied_before = model.artefact.tree, np.zeros(model.artefact.tree.num_leaves + 1, dtype=np.int64)
    np.cumsum(tree.item_at_leaf >= 0, out=occupied_before[1:])
    branches: list[dict[str, Any]] = []
    for level in range(1, tree.height):
        if tree.level_sizes[level] > per_level:
            break
        first, end = tree.leaf_ranges(np.arange(tree.level_sizes[level]), level)
        items = (occupied_before[end] - occupied_before[first]).tolist()
        branches += [
            {"level": level, "node": node, "name": model.branch_names.name(level, node), "items": count}
            for node, count in enumerate(items)
        ]
    return branches


def summarise_node(model: LoadedModel, level: int, node: int, *, sample: int) -> dict[str, Any]:
    """Number of leaves and items below a node, its most popular items and most frequent categories."""
    tree, catalogue = model.artefact.tree, model.catalogue
    first, end = (int(bound) for bound in tree.leaf_ranges(node, level))
    items = tree.item_at_leaf[first:end]
    items = items[items >= 0]
    shown = items
    if len(items) > sample:
        shown = items[np.argpartition(-catalogue.popularity[items], sample)[:sample]]
    shown = shown[np.lexsort((shown, -catalogue.popularity[shown]))]
    table = catalogue.item_table
    return {
        "level": level,
        "node": node,
        "name": model.branch_names.name(level, node),
        "leaves": end - first,
        "items": len(items),
        "sample": catalogue.rows(shown, catalogue.default_columns),
        "values": count_values(table[CATEGORY].gather(items), most=SHOWN_VALUES) if CATEGORY in table.columns else [],
    }
