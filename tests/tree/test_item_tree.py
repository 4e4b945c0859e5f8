from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from beamtree.errors import InputError
from beamtree.tree.item_tree import MAX_LEAVES, ItemTree, TreeShape, tree_height

BRANCHINGS = range(2, 11)
branchings = st.integers(min(BRANCHINGS), max(BRANCHINGS))
leaf_counts = st.integers(1, 5_000)


def check_arithmetic(shape: TreeShape) -> None:
    """Everything the arithmetic promises, leaf by leaf, with plain Python integers as the judge."""
    branching, num_leaves, height = shape.branching, shape.num_leaves, shape.height
    assert branching**height >= num_leaves
    assert height == 1 or branching ** (height - 1) < num_leaves
    assert shape.level_sizes.tolist() == [branching**level for level in range(height)] + [num_leaves]
    assert shape.num_nodes == sum(shape.level_sizes.tolist())
    leaves = np.arange(num_leaves)
    for level in range(height + 1):
        nodes = np.arange(shape.level_sizes[level])
        first, end = shape.leaf_ranges(nodes, level)
        assert first[0] == 0
        assert end[-1] == num_leaves
        assert np.array_equal(first[1:], end[:-1]), "the leaf ranges of a level touch and do not overlap"
        assert (end > first).all(), "every node has a leaf"
        above = shape.ancestors(leaves, level)
        assert np.array_equal(above, np.repeat(nodes, end - first)), "ancestors invert leaf ranges"
        if level < height:
            below = shape.ancestors(leaves, level + 1)
            first_child, end_child = shape.child_ranges(nodes, level)
            assert (first_child[above] <= below).all()
            assert (below < end_child[above]).all(), "the next ancestor of a leaf is a child of this one"
            assert np.array_equal(first_child[1:], end_child[:-1])
            assert end_child[-1] == shape.level_sizes[level + 1]
            assert (end_child - first_child <= branching).all()
            assert (end_child > first_child).all()


@pytest.mark.parametrize("branching", BRANCHINGS)
def test_arithmetic_holds_for_a_sweep_of_sizes(branching: int) -> None:
    powers = {size for power in range(1, 13) for size in range(branching**power - 1, branching**power + 2)}
    sizes = set(range(1, 131)) | set(range(131, 5_001, 197)) | {size for size in powers if size <= 5_000} | {5_000}
    for num_leaves in sorted(sizes):
        check_arithmetic(TreeShape(branching, num_leaves))


@settings(max_examples=60, deadline=None)
@given(branching=branchings, num_leaves=leaf_counts)
def test_arithmetic_holds_for_random_sizes(branching: int, num_leaves: int) -> None:
    check_arithmetic(TreeShape(branching, num_leaves))


@pytest.mark.parametrize(
    ("num_leaves", "branching", "height"),
    [(1, 2, 1), (2, 2, 1), (3, 2, 2), (125, 5, 3), (126, 5, 4), (1_000, 10, 3), (3**18, 3, 18), (7_129, 2, 13)],
)
def test_height_is_counted_in_integers(num_leaves: int, branching: int, height: int) -> None:
    assert tree_height(num_leaves, branching=branching) == height


def test_a_catalogue_of_7129_items() -> None:
    shape = TreeShape(2, 7_129)
    assert shape.height == 13
    assert shape.num_nodes == 8_191 + 7_129 == 15_320
    assert shape.level_offsets.tolist() == [2**level - 1 for level in range(14)] + [15_320]


def test_five_leaves_drawn_by_hand() -> None:
    #            0
    #       0         1
    #     0   1     2   3
    #    0 1  2     3   4
    shape = TreeShape(2, 5)
    assert shape.ancestors([0, 1, 2, 3, 4], 1).tolist() == [0, 0, 0, 1, 1]
    assert shape.ancestors([0, 1, 2, 3, 4], 2).tolist() == [0, 0, 1, 2, 3]
    first, end = shape.child_ranges([0, 1, 2, 3], 2)
    assert list(zip(first.tolist(), end.tolist(), strict=True)) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    first, end = shape.child_ranges([0, 1], 1)
    assert list(zip(first.tolist(), end.tolist(), strict=True)) == [(0, 2), (2, 4)]


@pytest.mark.parametrize("num_leaves", [1_000_000_000, MAX_LEAVES])
@pytest.mark.parametrize("branching", [2, 3, 10])
def test_nothing_overflows_with_a_billion_leaves(num_leaves: int, branching: int) -> None:
    shape = TreeShape(branching, num_leaves)
    leaves = np.array([0, 1, num_leaves // 3, num_leaves - 2, num_leaves - 1], dtype=np.int32)
    for level in range(shape.height + 1):
        size = int(shape.level_sizes[level])
        expected = [leaf * size // num_leaves for leaf in leaves.tolist()]
        assert shape.ancestors(leaves, level).tolist() == expected
        first, end = shape.leaf_ranges(np.array(expected), level)
        assert first.tolist() == [-(-node * num_leaves // size) for node in expected]
        assert end.tolist() == [-(-(node + 1) * num_leaves // size) for node in expected]


def test_levels_may_differ_from_node_to_node() -> None:
    shape = TreeShape(3, 50)
    levels = np.arange(shape.height + 1)
    together = shape.ancestors(np.arange(50)[:, None], levels)
    first, end = shape.leaf_ranges(together, levels)
    for level in levels.tolist():
        assert np.array_equal(together[:, level], shape.ancestors(np.arange(50), level))
        assert np.array_equal(first[:, level], shape.leaf_ranges(together[:, level], level)[0])
        assert np.array_equal(end[:, level], shape.leaf_ranges(together[:, level], level)[1])


@pytest.mark.parametrize("level", [-1, 4])
def test_a_level_that_does_not_exist_is_refused_also_among_others_that_do(level: int) -> None:
    tree = ItemTree(2, np.arange(7, dtype=np.int32))
    with pytest.raises(InputError, match=f"level from 0 .* to 3 .*got {level}"):
        tree.ancestors([0], level)
    with pytest.raises(InputError, match="level from 0"):
        tree.ancestors(np.zeros((1, 3), dtype=np.int64), np.array([0, level, 1]))
    with pytest.raises(InputError, match="got"):
        tree.occupied(level)


def test_leaves_have_no_children() -> None:
    with pytest.raises(InputError, match="to 2 of a tree of height 3, got 3"):
        TreeShape(2, 7).child_ranges([0], 3)


@settings(max_examples=60, deadline=None)
@given(branching=branchings, num_items=st.integers(1, 300), vacant=st.integers(0, 200), seed=st.integers(0, 2**32 - 1))
def test_items_and_vacant_leaves(branching: int, num_items: int, vacant: int, seed: int) -> None:
    placed = np.random.default_rng(seed).permutation(np.r_[np.arange(num_items), np.full(vacant, -1)])
    tree = ItemTree(branching, placed.astype(np.int32))
    assert (tree.num_items, tree.num_leaves) == (num_items, num_items + vacant)
    assert np.array_equal(tree.item_at_leaf[tree.leaf_of_item], np.arange(num_items))
    items = np.r_[np.arange(num_items), -1]
    for level in range(tree.height + 1):
        nodes = tree.item_ancestors(items, level)
        assert nodes[-1] == -1
        assert np.array_equal(nodes[:-1], tree.ancestors(tree.leaf_of_item, level))
        ranges = zip(*tree.leaf_ranges(np.arange(tree.level_sizes[level]), level), strict=True)
        assert tree.occupied(level).tolist() == [bool((placed[first:end] >= 0).any()) for first, end in ranges]


def test_a_single_item_is_a_root_and_a_leaf() -> None:
    tree = ItemTree(2, np.array([0], dtype=np.int32))
    assert (tree.height, tree.num_nodes, tree.num_items) == (1, 2, 1)
    first, end = tree.child_ranges([0], 0)
    assert (first.tolist(), end.tolist()) == ([0], [1])
    assert tree.item_ancestors([0, -1], 0).tolist() == [0, -1]


def test_a_tree_keeps_its_own_read_only_arrays() -> None:
    placed = np.array([2, 0, 1], dtype=np.int32)
    tree = ItemTree(2, placed)
    placed[0] = 7
    assert tree.item_at_leaf.tolist() == [2, 0, 1]
    assert tree.item_at_leaf.dtype == tree.leaf_of_item.dtype == np.int32
    for array in (tree.item_at_leaf, tree.leaf_of_item, tree.level_sizes, tree.level_offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(FrozenInstanceError):
        tree.branching = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("placed", "message"),
    [
        ([0, 1, 1], r"Item 1 stands on leaf 1 and again on leaf 2\. Number the 3 placed items 0 to 2"),
        ([0, 5, -1, 1], r"Leaf 1 carries item 5, outside 0 to 2\. Number the 3 placed items"),
        ([0, -3, 1], r"Leaf 1 carries item -3"),
        ([-1, -1], "all are vacant"),
        ([], "between 1 and .* leaves, got 0"),
        ([[0, 1], [2, 3]], r"flat integer array, got int64 of shape \(2, 2\)"),
        ([0.0, 1.0], "got float64"),
    ],
)
def test_impossible_placements_are_refused(placed: list[object], message: str) -> None:
    array: NDArray[Any] = np.array(placed) if placed else np.array([], dtype=np.int64)
    with pytest.raises(InputError, match=message):
        ItemTree(2, array)


def test_a_removed_item_keeps_its_leaf_which_returns_nothing() -> None:
    tree = ItemTree(2, np.array([2, 0, -1, 1], dtype=np.int32), removed=np.array([1, 1], dtype=np.int32))
    assert tree.item_at_leaf.tolist() == [2, 0, -1, -1]
    assert tree.leaf_of_item.tolist() == [1, 3, 0]
    assert (tree.num_items, tree.num_present, tree.removed.tolist()) == (3, 2, [1])
    assert tree.placement.tolist() == [2, 0, -1, 1]
    assert tree.occupied(1).tolist() == [True, False]
    assert tree.item_ancestors([1], 1).tolist() == [1]
    assert tree.without(np.array([0], dtype=np.int32)).item_at_leaf.tolist() == [2, -1, -1, 1]


def test_impossible_removals_are_refused() -> None:
    placed = np.array([0, 1], dtype=np.int32)
    for impossible in ([2], [-1]):
        with pytest.raises(InputError, match="removed items from 0 to 1"):
            ItemTree(2, placed, removed=np.array(impossible, dtype=np.int32))
    with pytest.raises(InputError, match=r"All 2 items would be removed\. Leave at least one"):
        ItemTree(2, placed, removed=placed)


def test_a_branching_below_two_is_refused() -> None:
    with pytest.raises(InputError, match="at least 2, got 1"):
        ItemTree(1, np.arange(3, dtype=np.int32))


def test_too_many_leaves_are_refused() -> None:
    with pytest.raises(InputError, match="Give it one leaf per item or more"):
        TreeShape(2, MAX_LEAVES + 1)
