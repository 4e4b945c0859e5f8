from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.errors import InputError
from beamtree.tree.assign import Assign, assign_balanced, assign_residents_first, by_regret
from beamtree.tree.auction import assign_by_auction
from research.placement import by_score

HOMELESS = np.full(8, -1)


def test_a_full_node_passes_its_item_on_to_the_next_best() -> None:
    """Eight items, four nodes of two: f wants the first node, which b and c fill; its next best is the second."""
    a, b, c, d, e, f, g, h = range(8)
    scores = np.full((8, 4), -9.0)
    for item, node, score in [(b, 0, -1), (c, 0, -2), (f, 0, -3), (f, 1, -4), (a, 1, -1), (d, 2, -1), (e, 2, -1)]:
        scores[item, node] = score
    scores[[g, h], 3] = -1.0
    nodes = assign_balanced(scores, capacities=np.full(4, 2), current=HOMELESS, priority=by_score)
    assert nodes.tolist() == [1, 0, 0, 2, 2, 1, 3, 3]


def test_regret_serves_those_who_would_lose_most() -> None:
    scores = np.array([[-1.0, -1.5], [-2.0, -9.0]])
    capacities, nobody = np.array([1, 1]), np.full(2, -1)
    greedy = assign_balanced(scores, capacities=capacities, current=nobody, priority=by_score)
    regretful = assign_balanced(scores, capacities=capacities, current=nobody, priority=by_regret)
    assert greedy.tolist() == [0, 1]
    assert regretful.tolist() == [1, 0]


def test_an_item_that_loses_nothing_gives_way() -> None:
    """Both bid for node 0. The first can go anywhere at the same cost; the second would lose 0.5."""
    scores = np.array([[-np.inf, -np.inf], [-1.0, -1.5]])
    nodes = assign_balanced(scores, capacities=np.array([1, 1]), current=np.full(2, -1), priority=by_regret)
    assert nodes.tolist() == [1, 0]


def test_who_is_there_already_keeps_its_node() -> None:
    """All like node 0 best. It keeps its two residents, then the highest score; the others go to their next best."""
    scores = np.array(
        [[-9.0, -10.0, -11.0], [-8.0, -9.0, -10.0], [-1.0, -3.0, -2.0], [-2.0, -3.0, -4.0], [-3.0, -4.0, -5.0]]
    )
    current = np.array([0, 0, 1, 2, 2])
    nodes = assign_residents_first(scores, capacities=np.array([3, 2, 2]), current=current)
    assert nodes.tolist() == [0, 0, 0, 1, 1]


def test_a_node_that_fills_up_later_sends_away_who_came_first() -> None:
    """Node 0 is the fullest and sends two newcomers to node 1, where the resident stays and a visitor must go on."""
    scores = np.array(
        [[-1.0, -9.0, -9.0], [-2.0, -3.0, -9.0], [-2.5, -3.0, -9.0], [-9.0, -5.0, -6.0], [-9.0, -4.0, -9.0]]
    )
    current = np.array([0, 2, 2, 2, 1])
    nodes = assign_residents_first(scores, capacities=np.array([1, 3, 1]), current=current)
    assert nodes.tolist() == [0, 1, 1, 2, 1]


@pytest.mark.parametrize("assign", [assign_balanced, assign_residents_first])
def test_items_without_data_stay_where_they_are_while_there_is_room(assign: Assign) -> None:
    scores = np.array([[-1.0, -2.0], [np.nan, np.nan], [np.nan, np.nan], [np.nan, np.nan]])
    nodes = assign(scores, capacities=np.array([2, 2]), current=np.array([1, 0, 0, 1]))
    assert nodes.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("assign", [assign_balanced, assign_residents_first])
@pytest.mark.parametrize("newcomer", [-1, 3])
def test_items_without_data_and_without_a_node_fill_what_residents_leave(assign: Assign, newcomer: int) -> None:
    """The newcomer stands between the residents of nodes 2 and 0; its own node, -1 or one too many, is none."""
    nodes = assign(np.full((3, 3), np.nan), capacities=np.ones(3, dtype=np.int64), current=np.array([2, newcomer, 0]))
    assert nodes.tolist() == [2, 1, 0]


@pytest.mark.parametrize("assign", [assign_balanced, assign_residents_first])
def test_too_little_room_is_refused(assign: Assign) -> None:
    with pytest.raises(InputError, match="room for 3 items"):
        assign(np.zeros((3, 2)), capacities=np.array([1, 1]), current=np.zeros(3, dtype=np.int64))


@settings(max_examples=80, deadline=None)
@given(
    num_items=st.integers(1, 40),
    num_nodes=st.integers(1, 9),
    spare=st.integers(0, 5),
    assign=st.sampled_from(
        [
            partial(assign_balanced, priority=by_score),
            partial(assign_balanced, priority=by_regret),
            assign_residents_first,
            assign_by_auction,
        ]
    ),
    seed=st.integers(0, 10_000),
)
def test_everyone_gets_a_node_and_no_node_overflows(
    num_items: int, num_nodes: int, spare: int, assign: Assign, seed: int
) -> None:
    """Ties, -inf and items without data among them."""
    generator = np.random.default_rng(seed)
    scores = generator.integers(-3, 1, size=(num_items, num_nodes)).astype(np.float64)
    scores[generator.random(scores.shape) < 0.2] = -np.inf
    scores[generator.random(num_items) < 0.2] = np.nan
    capacities = np.bincount(generator.integers(0, num_nodes, size=num_items + spare), minlength=num_nodes)
    current = generator.integers(-1, num_nodes, size=num_items)
    nodes = assign(scores, capacities=capacities, current=current)
    assert (nodes >= 0).all()
    assert (np.bincount(nodes, minlength=num_nodes) <= capacities).all()
