"""What requests cost, before they are searched for. The unit is one search with the model's own beam width."""

from collections.abc import Sequence

import numpy as np

from beamtree.retrieval.beam import first_searched_level
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.schemas.recommend_body import Recommend
from beamtree.tree.item_tree import ItemTree

EXPLAINED = 8.0
"""How often a search is repeated, about, to explain its result."""

ITEMS_A_NODE = 64
"""A condition is looked up for about so many items in the time that a node takes to be scored."""


def works_of(model: LoadedModel, requests: Sequence[Recommend]) -> list[float]:
    """The work of each request, at least 1: beam times levels, where a level counts no more nodes than it has."""
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
    """Children of the kept nodes on all levels that a beam of this width cannot keep whole; at least the leaves."""
    searched = tree.level_sizes[first_searched_level(tree, beam_width=width) :]
    return float(np.minimum(searched, tree.branching * width).sum())
