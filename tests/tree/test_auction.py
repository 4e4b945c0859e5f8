"""The auction comes near the best assignment there is, which scipy finds for small cases."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from beamtree.tree.assign import assign_balanced
from beamtree.tree.auction import assign_by_auction, auction_prices


def total(scores: np.ndarray, nodes: np.ndarray) -> float:
    return float(scores[np.arange(len(nodes)), nodes].sum())


def best_total(scores: np.ndarray, capacities: np.ndarray) -> float:
    slots = np.repeat(np.arange(len(capacities)), capacities)
    items, places = linear_sum_assignment(scores[:, slots], maximize=True)
    return float(scores[items, slots[places]].sum())


@pytest.mark.parametrize("seed", range(5))
def test_the_sum_is_within_the_tolerance_of_the_best(seed: int) -> None:
    generator = np.random.default_rng(seed)
    capacities = np.array([7, 1, 12, 20, 0, 10])
    popularity = generator.exponential(size=(50, 1)) * 10
    scores = popularity * (generator.normal(size=(50, 6)) + np.array([2.0, 1.0, 0.0, 0.0, 3.0, 0.0]))
    prices = auction_prices(scores, capacities=capacities, tolerance=0.01)
    nodes = assign_balanced(scores - prices, capacities=capacities, current=np.full(50, -1))
    assert total(scores, nodes) >= best_total(scores, capacities) - 50 * 0.01


def test_it_finds_what_greedy_choices_miss() -> None:
    """Both want the first node, and the greedy choice is in the way of the third, who can go nowhere else."""
    scores = np.array([[0.0, -4.0, -5.0], [0.0, -3.0, -20.0], [-1.0, -2.0, -50.0]])
    capacities, nobody = np.ones(3, dtype=np.int64), np.full(3, -1)
    auctioned = assign_by_auction(scores, capacities=capacities, current=nobody)
    assert total(scores, auctioned) == best_total(scores, capacities)
    assert total(scores, assign_balanced(scores, capacities=capacities, current=nobody)) < total(scores, auctioned)


def test_everyone_alike_is_spread_over_the_nodes() -> None:
    nodes = assign_by_auction(np.zeros((40, 8)), capacities=np.full(8, 5), current=np.full(40, -1))
    assert np.bincount(nodes).tolist() == [5] * 8


def test_a_placement_that_fits_already_costs_nothing() -> None:
    scores = np.array([[0.0, -1.0], [-1.0, 0.0], [0.0, -2.0]])
    assert auction_prices(scores, capacities=np.array([2, 1])).tolist() == [0.0, 0.0]
