"""Subtrees placed anew: what is inside finds its items better, what is outside does not change by a byte."""

from itertools import pairwise

import numpy as np
import pytest

from beamtree.model.embedding_init import node_means
from beamtree.model.guide import inner_vectors, subtree_vectors
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING
from beamtree.updating.subtrees import (
    FEWEST_INSTANCES,
    SUBTREE_LEAVES,
    PlacedVectors,
    fallen_subtrees,
    path_log_likelihoods,
    re_place,
    subtree_level,
    take_subtrees,
)
from tests.small import random_tree

WIDTH = 6


def placed_at_random(
    num_items: int, *, branching: int, seed: int, num_leaves: int | None = None, removed: int = 0
) -> tuple[PlacedVectors, np.ndarray]:
    """A tree in random order with random vectors, and expectations that its inner nodes are made for."""
    generator = np.random.default_rng(seed)
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_leaves)
    tree = tree.without(generator.permutation(num_items)[:removed].astype(np.int32))
    vectors = generator.standard_normal((num_items, WIDTH)).astype(np.float32)
    expectations = generator.standard_normal((50, WIDTH)).astype(np.float32)
    table = np.zeros((tree.num_nodes, WIDTH), dtype=np.float32)
    table[: tree.level_offsets[tree.height]] = inner_vectors(vectors, expectations, tree)
    table[tree.level_offsets[tree.height] + tree.leaf_of_item] = vectors
    return PlacedVectors(tree, table), expectations


def test_the_way_to_an_item_is_a_softmax_at_each_step() -> None:
    """Worked out on a tree of four leaves, one of them vacant: of a single child the likelihood is one."""
    tree = ItemTree(2, np.array([0, NOTHING, 1, 2]))
    table = np.arange(tree.num_nodes, dtype=np.float32)[:, None]  # root 0, nodes 1 and 2, leaves 3 to 6
    expectations = np.array([[1.0], [0.5], [2.0]], dtype=np.float32)
    found = path_log_likelihoods(PlacedVectors(tree, table), expectations, np.array([0, 1, 2], dtype=np.int32), level=0)
    first_step = [1 - np.log(np.e + np.e**2), 1 - np.log(np.exp(0.5) + np.e), 4 - np.log(np.e**2 + np.e**4)]
    second_step = [0.0, 2.5 - np.log(np.exp(2.5) + np.exp(3)), 12 - np.log(np.exp(10) + np.exp(12))]
    np.testing.assert_allclose(found, np.add(first_step, second_step), rtol=1e-6)
    below = path_log_likelihoods(PlacedVectors(tree, table), expectations, np.array([0, 1, 2], dtype=np.int32), level=1)
    np.testing.assert_allclose(below, second_step, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("num_leaves", "level"), [(2, 1), (256, 1), (512, 1), (513, 2), (5000, 5), (100_000, 9)])
def test_subtrees_have_a_few_hundred_leaves(num_leaves: int, level: int) -> None:
    tree = ItemTree(2, np.arange(num_leaves, dtype=np.int32))
    assert subtree_level(tree) == level
    first, end = tree.leaf_ranges(np.arange(tree.level_sizes[level]), level)
    assert (end - first).max() <= SUBTREE_LEAVES


def test_only_what_fell_on_enough_instances_is_placed_anew() -> None:
    roots = np.repeat([0, 1, 3, 4], [FEWEST_INSTANCES, FEWEST_INSTANCES - 1, FEWEST_INSTANCES, FEWEST_INSTANCES])
    before = np.full(len(roots), -1.0)
    after = np.where(roots == 3, -0.9, -1.1)
    after[roots == 4] = -1.0
    assert fallen_subtrees(roots, before=before, after=after).tolist() == [0]
    nothing = np.empty(0)
    assert fallen_subtrees(nothing.astype(np.int64), before=nothing, after=nothing).tolist() == []


@pytest.mark.parametrize("branching", [2, 3])
@pytest.mark.parametrize(("num_items", "num_leaves"), [(7, 7), (40, 40), (70, 128), (250, 300)])
def test_nothing_outside_of_the_subtrees_changes(num_items: int, num_leaves: int, branching: int) -> None:
    """The same items below each subtree, their vectors with them; all other leaves and rows to the byte."""
    placed, expectations = placed_at_random(
        num_items, branching=branching, seed=num_items, num_leaves=num_leaves, removed=num_items // 7
    )
    tree = placed.tree
    level = min(2, tree.height - 1)
    roots = [0, int(tree.level_sizes[level]) - 1]
    moved = re_place(placed, roots, level=level, expectations=expectations, seed=3)
    new = moved.tree
    np.testing.assert_array_equal(new.removed, tree.removed)
    np.testing.assert_array_equal(moved.item_vectors, placed.item_vectors)
    above = tree.ancestors(np.arange(num_leaves), level)
    outside = ~np.isin(above, roots)
    np.testing.assert_array_equal(new.placement[outside], tree.placement[outside])
    for root in roots:
        before, after = (np.sort(one.placement[above == root]) for one in (tree, new))
        np.testing.assert_array_equal(before, after)
    is_below = np.zeros(tree.num_nodes, dtype=np.bool_)
    for lower in range(level + 1, tree.height + 1):
        first, end = tree.level_offsets[lower], tree.level_offsets[lower + 1]
        nodes = np.arange(end - first)
        first_leaf, _ = tree.leaf_ranges(nodes, lower)
        is_below[first:end] = np.isin(above[first_leaf], roots)
    assert moved.node_table[~is_below].tobytes() == placed.node_table[~is_below].tobytes()
    again = re_place(placed, roots, level=level, expectations=expectations, seed=3)
    assert again.node_table.tobytes() == moved.node_table.tobytes()


def test_some_subtrees_are_taken_and_others_left() -> None:
    placed, expectations = placed_at_random(200, branching=2, seed=0)
    tree, level, roots = placed.tree, 2, [0, 1, 3]
    moved = re_place(placed, roots, level=level, expectations=expectations, seed=3)
    everything, nothing, some = (take_subtrees(placed, moved, chosen, level=level) for chosen in (roots, [], [1]))
    assert everything.node_table.tobytes() == moved.node_table.tobytes()
    np.testing.assert_array_equal(everything.tree.placement, moved.tree.placement)
    assert nothing.node_table.tobytes() == placed.node_table.tobytes()
    above = tree.ancestors(np.arange(tree.num_leaves), level)
    expected = np.where(above == 1, moved.tree.placement, tree.placement)
    np.testing.assert_array_equal(some.tree.placement, expected)
    assert not np.array_equal(expected, tree.placement)


def test_the_inner_nodes_of_a_subtree_are_those_that_the_whole_tree_gets() -> None:
    placed, expectations = placed_at_random(90, branching=2, seed=1, num_leaves=110)
    tree, vectors = placed.tree, placed.item_vectors
    whole, means = inner_vectors(vectors, expectations, tree), node_means(tree, vectors)
    level, node = 2, 3
    found = subtree_vectors(vectors, expectations, tree, level=level, node=node, means=means)
    rows = [tree.level_offsets[lower] + node * 2 ** (lower - level) for lower in range(level, tree.height)]
    sizes = [2 ** (lower - level) for lower in range(level, tree.height)]
    for (first, end), row in zip(pairwise(np.cumsum([0, *sizes])), rows, strict=True):
        np.testing.assert_allclose(found[first:end], whole[row : row + end - first], rtol=1e-4, atol=1e-5)


def test_a_scrambled_subtree_leads_to_its_items_again() -> None:
    """Items in tight groups of four in random order; clustering puts the groups side by side again."""
    generator = np.random.default_rng(4)
    centres = generator.standard_normal((32, WIDTH)).astype(np.float32) * 2
    vectors = np.repeat(centres, 4, axis=0) + 0.01 * generator.standard_normal((128, WIDTH)).astype(np.float32)
    tree = random_tree(128, branching=2, seed=9)
    expectations = vectors[generator.integers(0, 128, size=400)]
    table = np.zeros((tree.num_nodes, WIDTH), dtype=np.float32)
    table[: tree.level_offsets[tree.height]] = inner_vectors(vectors, expectations, tree)
    table[tree.level_offsets[tree.height] + tree.leaf_of_item] = vectors
    placed = PlacedVectors(tree, table)
    items = np.arange(128, dtype=np.int32)
    roots = tree.item_ancestors(items, 1)
    moved = re_place(placed, [0], level=1, expectations=expectations, seed=0)
    before, after = (path_log_likelihoods(one, vectors, items, level=1) for one in (placed, moved))
    assert after[roots == 0].mean() > before[roots == 0].mean() + 0.5
    np.testing.assert_array_equal(after[roots == 1], before[roots == 1])
