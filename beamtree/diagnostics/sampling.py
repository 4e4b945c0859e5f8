"""KL divergence of the negative sampler from the softmax of a level (Theorem 3, Lemma 3).

P is the softmax of the model's scores over the nodes of a level. Q is the sampler's distribution over the same nodes:
uniform, or top-down, the product of the softmaxes over siblings along a node's path. KL(Q || P) is what sampled softmax
can cost against the full one, in nats, and 0 where both agree.
"""

from collections.abc import Sequence

import numpy as np

from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float64Array


def log_softmax(scores: Float64Array) -> Float64Array:
    """Over a whole level (nodes,); -inf stays -inf."""
    return np.asarray(scores - log_total(scores))


def log_total(scores: Float64Array) -> float:
    """ln of the sum of exp(score) over a level (nodes,)."""
    highest = scores.max()
    return float(highest + np.log(np.exp(scores - highest).sum()))


def divergence(log_q: Float64Array, log_p: Float64Array) -> float:
    """KL(Q || P) in nats from two log distributions (nodes,); what Q never draws counts nothing."""
    drawn = np.isfinite(log_q)
    return float(np.sum(np.exp(log_q[drawn]) * (log_q[drawn] - log_p[drawn])))


def uniform_log_q(scores: Float64Array) -> Float64Array:
    """The uniform distribution over the nodes that can be drawn."""
    can_be_drawn = np.isfinite(scores)
    return np.where(can_be_drawn, -np.log(can_be_drawn.sum()), -np.inf)


def sibling_log_softmax(scores: Float64Array, *, tree: ItemTree, level: int) -> Float64Array:
    """The log of each node's share among its siblings (nodes,), for scores of a whole level (Eq. 22)."""
    first, end = tree.child_ranges(np.arange(tree.level_sizes[level - 1]), level - 1)
    highest = np.maximum.reduceat(scores, first)
    shifted = scores - np.repeat(np.where(np.isfinite(highest), highest, 0.0), end - first)
    totals = np.add.reduceat(np.exp(shifted), first)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = shifted - np.repeat(np.log(totals), end - first)
    return np.where(np.isfinite(scores), shares, -np.inf)


def top_down_log_q(levels: Sequence[Float64Array], *, tree: ItemTree, start: int) -> list[Float64Array]:
    """The log of the probability that a path draws each node, level by level (Eq. 23).

    levels: scores of whole levels, from level 1 on. Levels up to `start` are drawn from their exact softmax, deeper
    ones by descending from there; start = 1 is descending from the root.
    """
    log_q: list[Float64Array] = []
    for level, scores in enumerate(levels, start=1):
        if level <= start:
            log_q.append(log_softmax(scores))
            continue
        first, end = tree.child_ranges(np.arange(tree.level_sizes[level - 1]), level - 1)
        of_parent = np.repeat(log_q[-1], end - first)
        log_q.append(of_parent + sibling_log_softmax(scores, tree=tree, level=level))
    return log_q
