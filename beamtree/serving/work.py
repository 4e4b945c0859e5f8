"""The estimated cost of requests. The unit is one search with the model's beam width."""

from collections.abc import Sequence

import numpy as np

from beamtree.retrieval.beam import first_searched_level
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.schemas.recommend_body import Recommend
from beamtree.tree.item_tree import ItemTree

EXPLAINED = 8.0
"""Searches that an explanation costs, roughly."""

ITEMS_A_NODE = 64
"""Items for which a condition is evaluated in the time of scoring one node, roughly."""


def works_of(model: LoadedModel, requests: Sequence[Recommend]) -> list[float]:
    """The work of each request, at least 1: beam width times levels, with no more nodes than a level has."""
    tree, settings = model.artefact.tree, model.artefact.config.retrieval
    usual = _scored_nodes(tree, settings.beam_width)
    works = []
    for request in requests:
        width = max(request.beam or settings.beam_width, request.k)
        excludes_seen = settings.excludes_seen if request.exclude_seen is None else request.exclude_seen
        excluded = len(request.exclude) + (len(request.history or ()) if excludes_seen else 0)
        nodes = _scored_nodes(tree, width + min(width, excluded)) * (EXPLAINED if request.explain else 1.0)
        conditions = len(request.allow.where or ()) if request.allow is not None else 0
        works.append(max(1.0, (nodes + conditions * tree.num_items / ITEMS_A_NODE) / usual))
    return works


def _scored_nodes(tree: ItemTree, width: int) -> float:
    """Scored nodes: the children of the kept nodes, on all levels larger than the beam, and on the leaf level."""
    searched = tree.level_sizes[first_searched_level(tree, beam_width=width) :]
    return float(np.minimum(searched, tree.branching * width).sum())
