"""Levels too large to score whole: the same measures, estimated from nodes drawn down the tree and at random.

Paths go down from the deepest level that is scored whole, half of them by each of the two top-down distributions. Their
mixture m is close to the softmax, so ln Z = ln mean exp(o - ln m) needs few draws; KL(Q || P) = E_q[ln q - o] + ln Z.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from beamtree.diagnostics.heap import Pairs, compare_siblings
from beamtree.diagnostics.node_scores import Occupied
from beamtree.retrieval.beam import ScoreNodes
from beamtree.tree.item_tree import ItemTree

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Paths:
    """Draws on one level: nodes and the logs of both top-down probabilities, all (draws,), the first half from root's.

    scores: of the nodes; NaN before the first step down.
    """

    nodes: Int64Array
    from_root: Float64Array
    from_level: Float64Array
    scores: Float64Array


@dataclass(frozen=True)
class DeepEstimate:
    """Estimates for one level and history; log_total is that of the sum of exp(score) over the level."""

    uniform: float
    from_root: float
    from_level: float
    log_total: float
    largest_score: float


def draw_paths(
    from_root: Float64Array, from_level: Float64Array, *, draws: int, generator: np.random.Generator
) -> Paths:
    """The first nodes of the paths, from the two log distributions over a whole level."""
    nodes = np.concatenate([_draw(log_q, draws, generator=generator) for log_q in (from_root, from_level)])
    return Paths(nodes, from_root[nodes], from_level[nodes], np.full(len(nodes), np.nan))


def descend(
    paths: Paths, level: int, *, occupied: Occupied, score_nodes: ScoreNodes, generator: np.random.Generator
) -> Paths:
    """Each path goes on to one child on `level`, by the softmax over its siblings."""
    parents, place = np.unique(paths.nodes, return_inverse=True)
    children, scores = child_scores(parents, level, occupied=occupied, score_nodes=score_nodes)
    log_share = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    cumulative = np.exp(log_share).cumsum(axis=1)
    uniform = generator.random(len(place)) * cumulative[place, -1]
    chosen = (uniform[:, None] >= cumulative[place]).sum(axis=1)
    step = log_share[place, chosen]
    return Paths(children[place, chosen], paths.from_root + step, paths.from_level + step, scores[place, chosen])


def estimate_level(
    paths: Paths, level: int, *, occupied: Occupied, score_nodes: ScoreNodes, generator: np.random.Generator
) -> DeepEstimate:
    """The divergences of a level and its log total, from paths that have arrived there."""
    half = len(paths.nodes) // 2
    mixture = np.logaddexp(paths.from_root, paths.from_level) - np.log(2.0)
    log_total = float(np.logaddexp.reduce(paths.scores - mixture) - np.log(len(mixture)))
    everywhere = occupied.nodes[level]
    anywhere = score_nodes(level, everywhere[generator.integers(len(everywhere), size=half)]).astype(np.float64)
    return DeepEstimate(
        uniform=log_total - float(np.log(len(everywhere)) + anywhere.mean()),
        from_root=float((paths.from_root - paths.scores)[:half].mean()) + log_total,
        from_level=float((paths.from_level - paths.scores)[half:].mean()) + log_total,
        log_total=log_total,
        largest_score=float(max(np.abs(paths.scores).max(), np.abs(anywhere).max())),
    )


def compare_some_siblings(
    level: int, *, occupied: Occupied, score_nodes: ScoreNodes, draws: int, generator: np.random.Generator
) -> Pairs:
    """Sibling pairs on `level` against their best children, for families drawn at random."""
    above = occupied.nodes[level - 1]
    parents = above[generator.integers(len(above), size=draws)]
    siblings, own = child_scores(parents, level, occupied=occupied, score_nodes=score_nodes)
    flat = siblings.reshape(-1)
    is_there = np.isfinite(own.reshape(-1))
    best_below = np.full(flat.shape, -np.inf)
    _, below = child_scores(flat[is_there], level + 1, occupied=occupied, score_nodes=score_nodes)
    best_below[is_there] = below.max(axis=1)
    return compare_siblings(own, best_below.reshape(own.shape))


def child_scores(
    parents: Int64Array, level: int, *, occupied: Occupied, score_nodes: ScoreNodes
) -> tuple[Int64Array, Float64Array]:
    """The children on `level` of nodes (parents,) above, and their scores: (parents, branching), -inf for none."""
    tree: ItemTree = occupied.tree
    first, end = tree.child_ranges(parents, level - 1)
    children = first[:, None] + np.arange(tree.branching)
    is_child = children < end[:, None]
    is_child &= occupied.mask[level][np.where(is_child, children, first[:, None])]
    scores = np.full(children.shape, -np.inf)
    scores[is_child] = score_nodes(level, children[is_child])
    return children, scores


def _draw(log_q: Float64Array, draws: int, *, generator: np.random.Generator) -> Int64Array:
    cumulative = np.cumsum(np.exp(log_q))
    return np.asarray(np.searchsorted(cumulative, generator.random(draws) * cumulative[-1], side="right"))
