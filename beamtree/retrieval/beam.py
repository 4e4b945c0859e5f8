"""Beam search down the tree for one request, over any function that scores nodes.

This is the reference: the native search gives the same items in the same order. A scorer is a function from a level and
its nodes to their scores; eligibility counts the leaves below a node that may be returned.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array, Int64Array

ScoreNodes = Callable[[int, Int64Array], Float32Array]


@dataclass(frozen=True)
class Ranking:
    """Leaves in falling order of their scores, equal scores by rising leaf."""

    leaves: Int64Array
    scores: Float32Array


def beam_search(
    tree: ItemTree, score_nodes: ScoreNodes, *, eligibility: Eligibility, request: int, beam_width: int, k: int
) -> Ranking:
    """The best min(k, eligible) leaves that a beam finds (Algorithm 1).

    Levels of at most `beam_width` nodes would be kept whole, so the search starts at the first larger one. A node is
    entered only when an eligible leaf is below it, so every result is eligible.
    """
    if int(eligibility.total(request)) <= beam_width:
        return exact_scan(tree, score_nodes, eligibility=eligibility, request=request, k=k)
    level = first_searched_level(tree, beam_width=beam_width)
    nodes = _enterable(np.arange(tree.level_sizes[level]), level, eligibility=eligibility, request=request)
    while level < tree.height:
        kept = _top(score_nodes(level, nodes), beam_width)
        children = _children(tree, np.sort(nodes[kept]), level)
        level += 1
        nodes = _enterable(children, level, eligibility=eligibility, request=request)
    scores = score_nodes(level, nodes)
    best = _top(scores, k)
    return Ranking(leaves=nodes[best], scores=scores[best])


def exact_scan(tree: ItemTree, score_nodes: ScoreNodes, *, eligibility: Eligibility, request: int, k: int) -> Ranking:
    """The best min(k, eligible) of all leaves, as a beam as wide as the leaf level finds them."""
    leaves = _enterable(np.arange(tree.num_leaves), tree.height, eligibility=eligibility, request=request)
    scores = score_nodes(tree.height, leaves)
    best = _top(scores, k)
    return Ranking(leaves=leaves[best], scores=scores[best])


def widened(beam_width: int, num_excluded: ArrayLike) -> Int64Array:
    """Beam widths for requests with excluded leaves: wider by their number, at most twice the width."""
    return beam_width + np.minimum(np.asarray(num_excluded, dtype=np.int64), beam_width)


def first_searched_level(tree: ItemTree, *, beam_width: int) -> int:
    """The first level that a beam cannot keep whole; the leaves if there is none."""
    larger = np.flatnonzero(tree.level_sizes > beam_width)
    return int(larger[0]) if larger.size else tree.height


def _enterable(nodes: Int64Array, level: int, *, eligibility: Eligibility, request: int) -> Int64Array:
    return nodes[eligibility.count_below(np.int64(request), nodes, level) > 0]


def _children(tree: ItemTree, nodes: Int64Array, level: int) -> Int64Array:
    """Children of rising nodes, rising."""
    first, end = tree.child_ranges(nodes, level)
    offsets = np.arange(tree.branching)
    children = first[:, None] + offsets
    return children[children < end[:, None]]


def _top(scores: Float32Array, count: int) -> Int64Array:
    """Positions of the highest scores, best first; equal scores by rising position."""
    return np.argsort(-scores, kind="stable")[:count]
