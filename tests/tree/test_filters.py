import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from beamtree.errors import InputError
from beamtree.tree.build import plant, random_order
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree


def flat(lists: list[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    items = np.array([item for entry in lists for item in entry], dtype=np.int32)
    return items, np.cumsum([0] + [len(entry) for entry in lists], dtype=np.int64)


@pytest.fixture
def tree() -> ItemTree:
    """Leaves 0 to 5 carry the items 3, 1, none, 0, 4, 2; the two nodes of level 1 hold three leaves each."""
    return ItemTree(2, np.array([3, 1, -1, 0, 4, 2], dtype=np.int32))


def test_vacant_leaves_are_never_eligible(tree: ItemTree) -> None:
    eligibility = Eligibility(tree)
    assert eligibility.count_below(0, [0, 1], 1).tolist() == [2, 3]
    assert eligibility.leaves(7).tolist() == [0, 1, 3, 4, 5]
    assert eligibility.total([0, 7]).tolist() == [5, 5]


def test_allowed_and_excluded_items_together(tree: ItemTree) -> None:
    allowed = np.array([True, False, True, True, True])  # item 1, on leaf 1, is out
    eligibility = Eligibility(tree, allowed_items=allowed, excluded_items=flat([[], [3, 3, 1, -1], [2, 0, 4]]))
    assert eligibility.leaves(0).tolist() == [0, 3, 4, 5]
    assert eligibility.leaves(1).tolist() == [3, 4, 5]
    assert eligibility.leaves(2).tolist() == [0]
    assert eligibility.total([0, 1, 2]).tolist() == [4, 3, 1]
    assert eligibility.num_excluded([0, 1, 2]).tolist() == [0, 1, 3], (
        "repeats, unknown and disallowed items do not count"
    )
    below = eligibility.count_below(np.array([0, 1, 2])[:, None], np.array([0, 1]), 1)
    assert below.tolist() == [[1, 3], [0, 3], [1, 0]]


def test_no_node_has_no_leaves(tree: ItemTree) -> None:
    assert Eligibility(tree).count_below(0, [-1, 0, -1], 1).tolist() == [0, 2, 0]


def test_nothing_allowed_leaves_nothing(tree: ItemTree) -> None:
    eligibility = Eligibility(tree, allowed_items=np.zeros(5, dtype=np.bool_))
    assert eligibility.total(0) == 0
    assert eligibility.leaves(0).size == 0


@settings(max_examples=80, deadline=None)
@given(
    num_items=st.integers(1, 60),
    vacant=st.integers(0, 30),
    branching=st.integers(2, 10),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_counts_equal_a_count_by_hand(num_items: int, vacant: int, branching: int, share: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    order = random_order(num_items, generator=generator)
    tree = plant(order, branching=branching, num_leaves=num_items + vacant)
    allowed = generator.random(num_items) < share
    lists = [generator.integers(-1, num_items, size=generator.integers(0, 12)).tolist() for _ in range(5)]
    eligibility = Eligibility(tree, allowed_items=allowed, excluded_items=flat(lists))
    for request, excluded in enumerate(lists):
        expected = [
            leaf
            for leaf, item in enumerate(tree.item_at_leaf.tolist())
            if item >= 0 and allowed[item] and item not in excluded
        ]
        assert eligibility.leaves(request).tolist() == expected
        assert eligibility.total(request) == len(expected)
        for level in range(tree.height + 1):
            nodes = np.arange(tree.level_sizes[level])
            by_hand = np.bincount(tree.ancestors(expected, level), minlength=nodes.size)
            assert eligibility.count_below(request, nodes, level).tolist() == by_hand.tolist()


def test_requests_and_nodes_broadcast() -> None:
    generator = np.random.default_rng(0)
    tree = plant(random_order(100, generator=generator), branching=3)
    eligibility = Eligibility(tree, excluded_items=flat([[1, 2, 3], [4], list(range(100))]))
    requests, nodes = np.array([[2], [0], [1]]), generator.integers(0, 27, size=(3, 8))
    together = eligibility.count_below(requests, nodes, 3)
    assert together.shape == (3, 8)
    for row, request in enumerate([2, 0, 1]):
        assert together[row].tolist() == eligibility.count_below(request, nodes[row], 3).tolist()
    assert (together[0] == 0).all()


@pytest.mark.parametrize("request_number", [-1, 2])
def test_a_request_without_exclusions_of_its_own_is_refused(tree: ItemTree, request_number: int) -> None:
    eligibility = Eligibility(tree, excluded_items=flat([[0], [1]]))
    with pytest.raises(InputError, match="requests 0 to 1"):
        eligibility.count_below([0, request_number], 0, 0)
    with pytest.raises(InputError, match="requests 0 to 1"):
        eligibility.leaves(request_number)


@pytest.mark.parametrize("allowed", [np.ones(4, dtype=np.bool_), np.ones(5, dtype=np.int64)])
def test_a_mask_that_does_not_fit_is_refused(tree: ItemTree, allowed: NDArray[np.bool_]) -> None:
    with pytest.raises(InputError, match=r"bool \(5,\)"):
        Eligibility(tree, allowed_items=allowed)


@pytest.mark.parametrize(
    ("items", "offsets", "message"),
    [
        ([0, 5], [0, 2], "from 0 to 4"),
        ([3, -2], [0, 2], "from 0 to 4"),
        ([0, 1], [0, 1], "rise from 0 to its 2 items"),
        ([0, 1], [1, 2], "rise from 0 to its 2 items"),
        ([0, 1], [0, 2, 1, 2], "rise from 0 to its 2 items"),
        ([], [], "rise from 0 to its 0 items"),
    ],
)
def test_exclusions_that_do_not_fit_are_refused(
    tree: ItemTree, items: list[int], offsets: list[int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Eligibility(tree, excluded_items=(np.array(items, dtype=np.int32), np.array(offsets, dtype=np.int64)))
