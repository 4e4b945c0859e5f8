"""The same search once more, writing down what it saw: the beam on each level and each result's path."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from beamtree.data.requests import Requests
from beamtree.retrieval.beam import ScoreNodes, beam_search
from beamtree.retrieval.engine import scores_of
from beamtree.serving.loaded_model import LoadedModel
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array, Int32Array, Int64Array

SHOWN_DROPPED = 1000


@dataclass(frozen=True)
class SeenLevel:
    """All nodes that were scored on one level, best first, and how many of them the search kept."""

    level: int
    nodes: Int64Array
    scores: Float32Array
    kept: int

    @property
    def cutoff(self) -> float | None:
        """Score of the last node that was kept."""
        return float(self.scores[self.kept - 1]) if self.kept else None


@dataclass(frozen=True)
class Explained:
    """Items (n,), n <= k, best first, their scores, the levels of the search, and each item's path."""

    items: Int32Array
    scores: Float32Array
    trace: dict[str, Any]
    paths: list[list[dict[str, Any]]]


def explain_search(
    model: LoadedModel,
    request: Requests,
    *,
    k: int,
    beam_width: int,
) -> Explained:
    """Search for one request with the reference search, and tell how it went."""
    tree = model.artefact.tree
    eligibility = model.engine.eligibility(request)
    width = max(beam_width, k)
    width += min(int(eligibility.num_excluded(0)), width)
    score_nodes = scores_of(model.engine.scorer.prepare(request), 0)
    seen: list[SeenLevel] = []

    def record(level: int, nodes: Int64Array) -> Float32Array:
        scores = score_nodes(level, nodes)
        order = np.argsort(-scores, kind="stable")
        kept = min(len(nodes), k if level == tree.height else width)
        seen.append(SeenLevel(level, nodes[order], scores[order], kept))
        return scores

    ranking = beam_search(tree, record, eligibility=eligibility, request=0, beam_width=width, k=k)
    return Explained(
        items=tree.item_at_leaf[ranking.leaves],
        scores=ranking.scores,
        trace={
            "width": width,
            "exact": seen[0].level == tree.height,
            "levels": [_level(tree, level) for level in seen],
        },
        paths=_paths(tree, score_nodes, leaves=ranking.leaves, seen=seen),
    )


def _level(tree: ItemTree, seen: SeenLevel) -> dict[str, Any]:
    dropped = slice(seen.kept, seen.kept + SHOWN_DROPPED)
    return {
        "level": seen.level,
        "size": int(tree.level_sizes[seen.level]),
        "scored": len(seen.nodes),
        "kept": seen.kept,
        "cutoff": seen.cutoff,
        "nodes": seen.nodes[: seen.kept].tolist(),
        "scores": seen.scores[: seen.kept].tolist(),
        "dropped": seen.nodes[dropped].tolist(),
        "dropped_scores": seen.scores[dropped].tolist(),
    }


def _paths(
    tree: ItemTree, score_nodes: ScoreNodes, *, leaves: Int64Array, seen: list[SeenLevel]
) -> list[list[dict[str, Any]]]:
    """For each leaf its nodes from level 1 down, with scores; ranks on the levels that were searched."""
    by_level = {level.level: level for level in seen}
    paths: list[list[dict[str, Any]]] = [[] for _ in leaves]
    for level in range(1, tree.height + 1):
        nodes = tree.ancestors(leaves, level)
        looked_at = by_level.get(level)
        if looked_at is None:
            distinct, place = np.unique(nodes, return_inverse=True)
            scores = score_nodes(level, distinct)[place]
        else:
            rank_of = {node: rank for rank, node in enumerate(looked_at.nodes.tolist())}
            ranks = np.array([rank_of[node] for node in nodes.tolist()], dtype=np.int64)
            scores = looked_at.scores[ranks]
        for index, path in enumerate(paths):
            path.append(
                {
                    "level": level,
                    "node": int(nodes[index]),
                    "score": float(scores[index]),
                    "searched": looked_at is not None,
                    "rank": None if looked_at is None else int(ranks[index]) + 1,
                    "kept": True if looked_at is None else int(ranks[index]) < looked_at.kept,
                    "cutoff": None if looked_at is None else looked_at.cutoff,
                }
            )
    return paths
