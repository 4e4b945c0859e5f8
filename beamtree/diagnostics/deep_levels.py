"""Levels too large to score whole: the same measures, estimated from nodes drawn down the tree and evenly.

Paths go down from the deepest level that is scored whole, a third of them by each of the two top-down distributions and
a third to leaves drawn evenly. With m their mixture, ln Z = ln mean exp(o - ln m); KL(Q || P) = E_q[ln q - o] + ln Z.
Where the levels agree, draws down the tree are close to the softmax and few are enough; where they do not, these miss
nodes that score high, and the even ones keep ln Z from being far too low.
"""

from dataclasses import dataclass

import numpy as np

from beamtree.diagnostics.heap import Pairs, compare_siblings
from beamtree.diagnostics.node_scores import Occupied
from beamtree.retrieval.beam import ScoreNodes
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float64Array, Int64Array


@dataclass(frozen=True)
class Paths:
    """Draws on one level: nodes and the logs of both top-down probabilities, all (3 * draws,).

    A third is drawn from the root, a third from the start level, the rest goes to `leaves` (draws,).
    scores: of the nodes; NaN before the first step down.
    """

    nodes: Int64Array
    from_root: Float64Array
    from_level: Float64Array
    scores: Float64Array
    leaves: Int64Array


@dataclass(frozen=True)
class DeepEstimate:
    """Estimates for one level and history; log_total is that of the sum of exp(score) over the level."""

    uniform: float
    from_root: float
    from_level: float
    log_total: float


def draw_paths(
    from_root: Float64Array,
    from_level: Float64Array,
    *,
    level: int,
    tree: ItemTree,
    draws: int,
    generator: np.random.Generator,
) -> Paths:
    """The first nodes of the paths, from the two log distributions over a whole level and above leaves of any items."""
    leaves = tree.leaf_of_item[generator.integers(tree.num_items, size=draws)].astype(np.int64)
    drawn = [_draw(log_q, draws, generator=generator) for log_q in (from_root, from_level)]
    nodes = np.concatenate([*drawn, tree.ancestors(leaves, level)])
    return Paths(nodes, from_root[nodes], from_level[nodes], np.full(len(nodes), np.nan), leaves)


def descend(
    paths: Paths, level: int, *, occupied: Occupied, score_nodes: ScoreNodes, generator: np.random.Generator
) -> Paths:
    """Each path goes on to one child on `level`: towards its leaf, or by the softmax over the siblings."""
    parents, place = np.unique(paths.nodes, return_inverse=True)
    children, scores = child_scores(parents, level, occupied=occupied, score_nodes=score_nodes)
    log_share = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    cumulative = np.exp(log_share).cumsum(axis=1)
    uniform = generator.random(len(place)) * cumulative[place, -1]
    chosen = (uniform[:, None] >= cumulative[place]).sum(axis=1)
    to_leaves = slice(-len(paths.leaves), None)
    chosen[to_leaves] = occupied.tree.ancestors(paths.leaves, level) - children[place[to_leaves], 0]
    step = log_share[place, chosen]
    return Paths(
        children[place, chosen],
        paths.from_root + step,
        paths.from_level + step,
        scores[place, chosen],
        paths.leaves,
    )


def estimate_level(paths: Paths, level: int, *, occupied: Occupied) -> DeepEstimate:
    """The divergences of a level and its log total, from paths that have arrived there."""
    draws = len(paths.leaves)
    evenly = np.log(occupied.items_below(paths.nodes, level) / occupied.tree.num_items)
    mixture = np.logaddexp.reduce([paths.from_root, paths.from_level, evenly]) - np.log(3.0)
    log_total = float(np.logaddexp.reduce(paths.scores - mixture) - np.log(len(mixture)))
    mean_score = np.average(paths.scores[-draws:], weights=np.exp(-evenly[-draws:]))
    return DeepEstimate(
        uniform=log_total - float(np.log(len(occupied.nodes[level])) + mean_score),
        from_root=float((paths.from_root - paths.scores)[:draws].mean()) + log_total,
        from_level=float((paths.from_level - paths.scores)[draws : 2 * draws].mean()) + log_total,
        log_total=log_total,
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
