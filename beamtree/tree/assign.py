"""Greedy balanced assignment: every item to one node, no node beyond its capacity, the sum of scores high.

Items bid for the best node that still has room; a node with too many bidders takes those that matter most, and the
others bid again. Who matters most is a function that is passed in: `by_regret` prefers items that would lose most by
going to their second-best node. The published code has a way of its own, in which an item that stays goes before any
that arrives: `assign_residents_first`.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from beamtree.errors import InputError
from beamtree.types import NOTHING, BoolArray, Float64Array, FloatArray, Int64Array

Priority = Callable[[Float64Array, Float64Array], Float64Array]
"""From each bidder's best and second-best score to how much it matters."""


class Assign(Protocol):
    """A way to give every item one node; see `assign_balanced` for what goes in and out."""

    def __call__(self, scores: FloatArray, *, capacities: Int64Array, current: Int64Array) -> Int64Array:
        """The node of each item, no node beyond its capacity."""


def by_regret(best: Float64Array, second: Float64Array) -> Float64Array:
    """The more an item would lose by going elsewhere, the earlier it is placed."""
    with np.errstate(invalid="ignore"):
        regret = best - second
    return np.where(np.isnan(regret), 0.0, regret)


def assign_balanced(
    scores: FloatArray, *, capacities: Int64Array, current: Int64Array, priority: Priority = by_regret
) -> Int64Array:
    """The node of each item: (items,).

    scores: (items, nodes), -inf where an item cannot be told apart from worst; rows that are NaN throughout belong to
    items without data. These come last: they keep their `current` node (items,) while it has room, then fill the rest.
    capacities: (nodes,), together at least the number of items, else InputError. Ties go to the lower node and item.
    """
    _refuse_too_little_room(capacities, num_items=len(scores))
    node_of_item = np.full(len(scores), NOTHING, dtype=np.int64)
    room = capacities.astype(np.int64).copy()
    waiting = np.flatnonzero(~np.isnan(scores).all(axis=1))
    while waiting.size:
        open_nodes = np.flatnonzero(room > 0)
        bids = scores[waiting][:, open_nodes].astype(np.float64)
        choice = bids.argmax(axis=1)
        best = bids[np.arange(waiting.size), choice]
        bids[np.arange(waiting.size), choice] = -np.inf
        importance = priority(best, bids.max(axis=1))
        taken = _place(waiting, open_nodes[choice], importance=importance, room=room, node_of_item=node_of_item)
        waiting = waiting[~taken]
    _place_the_rest(node_of_item, room=room, current=current)
    return node_of_item


def assign_residents_first(scores: FloatArray, *, capacities: Int64Array, current: Int64Array) -> Int64Array:
    """The node of each item (items,), as in `assign_balanced`, by the algorithm of the published code.

    Every item is assigned to the node with its highest score. Overfull nodes, the fullest first, then keep the items
    that they had before, fill up with the highest best scores, and close; the others go to their best open node.
    """
    _refuse_too_little_room(capacities, num_items=len(scores))
    node_of_item = np.full(len(scores), NOTHING, dtype=np.int64)
    items = np.flatnonzero(~np.isnan(scores).all(axis=1))
    node_of_item[items] = scores[items].argmax(axis=1)
    best = scores.max(axis=1)
    is_open = np.ones(len(capacities), dtype=np.bool_)
    while True:
        crowd = np.bincount(node_of_item[items], minlength=len(capacities))
        overfull = np.flatnonzero(is_open & (crowd > capacities))
        if not overfull.size:
            break
        node = overfull[crowd[overfull].argmax()]
        bidders = items[node_of_item[items] == node]
        order = np.lexsort((bidders, -best[bidders], current[bidders] != node))
        sent_away = bidders[order[capacities[node] :]]
        is_open[node] = False
        open_nodes = np.flatnonzero(is_open)
        node_of_item[sent_away] = open_nodes[scores[np.ix_(sent_away, open_nodes)].argmax(axis=1)]
    _place_the_rest(node_of_item, room=capacities - crowd, current=current)
    return node_of_item


def _refuse_too_little_room(capacities: Int64Array, *, num_items: int) -> None:
    if capacities.sum() < num_items:
        raise InputError(f"Expected room for {num_items} items, the nodes have {capacities.sum()}.")


def _place_the_rest(node_of_item: Int64Array, *, room: Int64Array, current: Int64Array) -> None:
    """Items without a node have no data: they stay at their `current` one while it has room, then fill the rest."""
    homeless = np.flatnonzero(node_of_item < 0)
    inside = homeless[(current[homeless] >= 0) & (current[homeless] < len(room))]
    _place(inside, current[inside], importance=np.zeros(inside.size), room=room, node_of_item=node_of_item)
    rest = np.flatnonzero(node_of_item < 0)
    node_of_item[rest] = np.repeat(np.arange(len(room)), room)[: rest.size]


def _place(
    items: Int64Array, nodes: Int64Array, *, importance: Float64Array, room: Int64Array, node_of_item: Int64Array
) -> BoolArray:
    """Give each item its node, the most important first, while there is room; which items were placed."""
    order = np.lexsort((items, -importance, nodes))
    sorted_nodes = nodes[order]
    place_in_node = np.arange(order.size) - np.searchsorted(sorted_nodes, sorted_nodes)
    taken = np.zeros(items.size, dtype=np.bool_)
    taken[order] = place_in_node < room[sorted_nodes]
    node_of_item[items[taken]] = nodes[taken]
    room -= np.bincount(nodes[taken], minlength=room.size)
    return taken
