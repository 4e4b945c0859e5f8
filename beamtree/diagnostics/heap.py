"""Whether the tree is a max-heap in the sense that beam search needs.

Scores of different levels cannot be compared, since each level is a softmax of its own. What beam search needs is that
on every level a node ranks as high as the best below it (the rank consistency of Proposition 3). So a pair of siblings
is a violation where their own order contradicts the order of the best below them.
"""

from dataclasses import dataclass

import numpy as np

from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float64Array, Int64Array


@dataclass(frozen=True)
class Pairs:
    """The number of compared pairs of siblings, and of violations among them."""

    compared: int
    violated: int

    @property
    def share(self) -> float:
        """Violated / compared; NaN where nothing was compared."""
        return self.violated / self.compared if self.compared else np.nan


def compare_siblings(own: Float64Array, best_below: Float64Array) -> Pairs:
    """own, best_below: (families, siblings), -inf where there is no such sibling. Ties are no violations."""
    compared = violated = 0
    siblings = own.shape[1]
    for one in range(siblings):
        for other in range(one + 1, siblings):
            both = np.isfinite(own[:, one]) & np.isfinite(own[:, other])
            own_gap = own[both, one] - own[both, other]
            gap_below = best_below[both, one] - best_below[both, other]
            compared += int(both.sum())
            violated += int((own_gap * gap_below < 0).sum())
    return Pairs(compared, violated)


def families(values: Float64Array, *, branching: int) -> Float64Array:
    """Values of a whole inner level (nodes,) as (parents, siblings)."""
    return values.reshape(-1, branching)


def best_children(scores: Float64Array, *, tree: ItemTree, level: int) -> Float64Array:
    """The best score on level + 1 among the children of each node of `level`, from scores of that whole level + 1."""
    first, _ = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
    return np.asarray(np.maximum.reduceat(scores, first))


def best_leaves(leaf_scores: Float64Array, *, tree: ItemTree) -> list[Float64Array]:
    """The best leaf's score below every node, for levels 0 to height."""
    best = [leaf_scores]
    for level in range(tree.height - 1, -1, -1):
        best.append(best_children(best[-1], tree=tree, level=level))
    return best[::-1]


def top_leaves(leaf_scores: Float64Array, *, count: int) -> Int64Array:
    """The best leaves of all, at most `count`, leaves without an item left out."""
    order = np.argsort(-leaf_scores, kind="stable")[:count]
    return order[np.isfinite(leaf_scores[order])]


def share_below_rank(scores: Float64Array, nodes: Int64Array, *, width: int) -> float:
    """The share of the nodes that are not among the `width` best of their level, equal scores by lower node."""
    kept = np.argsort(-scores, kind="stable")[:width]
    return float(1.0 - np.isin(nodes, kept).mean())
