"""Near-optimal balanced assignment by auction: each node has a price, and each item bids for its best node.

A node with more bidders than capacity raises its price until the surplus items bid for other nodes instead. Prices only
rise, so an assigned item keeps its best node at the current prices; when every item is assigned, the sum of scores is
within `tolerance` per item of the optimum (Bertsekas, 1988). A greedy assignment never revises a choice: its sum is far
lower, and can even be below that of the placement it starts from.
"""

import numpy as np

from beamtree.tree.assign import assign_balanced, by_regret
from beamtree.types import Float64Array, FloatArray, Int64Array

MAX_RAISES = 2000
"""Times that prices are raised; what does not fit by then is placed greedily at these prices."""

SHARE_OF_MARGIN = 0.1
"""The tolerance, as a share of what the median item prefers its best node by."""


def assign_by_auction(scores: FloatArray, *, capacities: Int64Array, current: Int64Array) -> Int64Array:
    """The node of each item (items,), as in `assign_balanced`, with a near-optimal sum of scores."""
    has_data = ~np.isnan(scores).all(axis=1)
    priced = scores.astype(np.float64)
    priced[has_data] -= auction_prices(_finite(priced[has_data]), capacities=capacities)
    return assign_balanced(priced, capacities=capacities, current=current, priority=by_regret)


def auction_prices(scores: Float64Array, *, capacities: Int64Array, tolerance: float | None = None) -> Float64Array:
    """The price of each node, (nodes,), for scores (items, nodes) without NaN or infinity."""
    prices = np.zeros(len(capacities))
    if len(capacities) < 2 or len(scores) <= capacities.min():
        return prices
    if tolerance is None:
        tolerance = _tolerance(scores)
    node_of_item = scores.argmax(axis=1)
    for _ in range(MAX_RAISES):
        is_crowded = np.bincount(node_of_item, minlength=len(capacities)) > capacities
        if not is_crowded.any():
            break
        bidders = np.flatnonzero(is_crowded[node_of_item])
        nodes = node_of_item[bidders]
        margins = _margins(scores[bidders] - prices, nodes)
        order = np.lexsort((-margins, nodes))
        bidders, nodes, margins = bidders[order], nodes[order], margins[order]
        place = np.arange(len(nodes)) - np.searchsorted(nodes, nodes)
        first_out = place == capacities[nodes]
        prices[nodes[first_out]] += margins[first_out] + tolerance
        outbid = bidders[place >= capacities[nodes]]
        node_of_item[outbid] = (scores[outbid] - prices).argmax(axis=1)
    return prices


def _margins(values: Float64Array, nodes: Int64Array) -> Float64Array:
    """By how much each row's value for its node exceeds the best of the others."""
    rows = np.arange(len(values))
    own = values[rows, nodes]
    others = values.copy()
    others[rows, nodes] = -np.inf
    margins: Float64Array = own - others.max(axis=1)
    return margins


def _tolerance(scores: Float64Array) -> float:
    margins = _margins(scores, scores.argmax(axis=1))
    positive = margins[margins > 0]
    return SHARE_OF_MARGIN * float(np.median(positive)) if positive.size else 1.0


def _finite(scores: Float64Array) -> Float64Array:
    """Scores with -inf brought to twice the distance of the lowest from the highest, so that prices stay finite."""
    finite = scores[np.isfinite(scores)]
    if not finite.size:
        return np.zeros_like(scores)
    lowest = 2 * finite.min() - finite.max() - 1.0
    return np.nan_to_num(scores, nan=lowest, neginf=lowest, posinf=finite.max())
