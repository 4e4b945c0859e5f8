"""Greedy balanced assignment: every item to one node, no node beyond its capacity, the sum of scores high.

Items bid for the best node that still has room; a node with too many bidders takes those that matter most, and the
others bid again. Who matters most is a function that is passed in: `by_score` is the paper's greedy choice, `by_regret`
prefers items that would lose most by going to their second-best node.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from beamtree.errors import InputError

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]
Priority = Callable[[Float64Array, Float64Array], Float64Array]
"""From each bidder's best and second-best score to how much it matters."""


class Assign(Protocol):
    """A way to give every item one node; see `assign_balanced` for what goes in and out."""

    def __call__(self, scores: npt.NDArray[np.floating], *, capacities: Int64Array, current: Int64Array) -> Int64Array:
        """The node of each item, no node beyond its capacity."""
        ...


def by_score(best: Float64Array, _second: Float64Array) -> Float64Array:
    """The higher an item's score for the node, the earlier it is placed (the paper's greedy assignment)."""
    return best


def by_regret(best: Float64Array, second: Float64Array) -> Float64Array:
    """The more an item would lose by going elsewhere, the earlier it is placed."""
    with np.errstate(invalid="ignore"):
        regret = best - second
    return np.where(np.isnan(regret), 0.0, regret)


def assign_balanced(
    scores: npt.NDArray[np.floating], *, capacities: Int64Array, current: Int64Array, priority: Priority = by_regret
) -> Int64Array:
    """The node of each item: (items,).

    scores: (items, nodes), -inf where an item cannot be told apart from worst; rows that are NaN throughout belong to
    items without data. These come last: they keep their `current` node (items,) while it has room, then fill the rest.
    capacities: (nodes,), together at least the number of items, else InputError. Ties go to the lower node and item.
    """
    num_items, num_nodes = scores.shape
    if capacities.sum() < num_items:
        raise InputError(f"Expected room for {num_items} items, the nodes have {capacities.sum()}.")
    node_of_item = np.full(num_items, -1, dtype=np.int64)
    room = capacities.astype(np.int64).copy()
    has_data = ~np.isnan(scores).all(axis=1)
    waiting = np.flatnonzero(has_data)
    while waiting.size:
        open_nodes = np.flatnonzero(room > 0)
        bids = scores[waiting][:, open_nodes].astype(np.float64)
        choice = bids.argmax(axis=1)
        best = bids[np.arange(waiting.size), choice]
        bids[np.arange(waiting.size), choice] = -np.inf
        importance = priority(best, bids.max(axis=1))
        taken = _place(waiting, open_nodes[choice], importance=importance, room=room, node_of_item=node_of_item)
        waiting = waiting[~taken]
    without_data = np.flatnonzero(~has_data)
    inside = without_data[(current[without_data] >= 0) & (current[without_data] < num_nodes)]
    _place(inside, current[inside], importance=np.zeros(inside.size), room=room, node_of_item=node_of_item)
    rest = np.flatnonzero(node_of_item < 0)
    node_of_item[rest] = np.repeat(np.arange(num_nodes), room)[: rest.size]
    return node_of_item


def _place(
    items: Int64Array, nodes: Int64Array, *, importance: Float64Array, room: Int64Array, node_of_item: Int64Array
) -> npt.NDArray[np.bool_]:
    """Give each item its node, the most important first, while there is room; which items were placed."""
    order = np.lexsort((items, -importance, nodes))
    sorted_nodes = nodes[order]
    place_in_node = np.arange(order.size) - np.searchsorted(sorted_nodes, sorted_nodes)
    taken = np.zeros(items.size, dtype=np.bool_)
    taken[order] = place_in_node < room[sorted_nodes]
    node_of_item[items[taken]] = nodes[taken]
    room -= np.bincount(nodes[taken], minlength=room.size)
    return taken
