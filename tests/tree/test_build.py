import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.errors import InputError
from beamtree.tree.build import (
    DIVIDING_STEPS,
    POWER_STEPS,
    category_order,
    clustering_order,
    plant,
    random_order,
)
from beamtree.tree.item_tree import TreeShape
from beamtree.types import Float64Array


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_items_stand_in_the_given_order() -> None:
    assert plant([2, 0, 1], branching=2).item_at_leaf.tolist() == [2, 0, 1]


def test_vacant_leaves_are_spread_evenly() -> None:
    assert plant([2, 0, 1], branching=2, num_leaves=6).item_at_leaf.tolist() == [2, -1, 0, -1, 1, -1]
    assert plant([3, 0, 1, 2], branching=2, num_leaves=6).item_at_leaf.tolist() == [3, 0, -1, 1, 2, -1]


@settings(max_examples=60, deadline=None)
@given(num_items=st.integers(1, 400), vacant=st.integers(0, 400), branching=st.integers(2, 10))
def test_every_stretch_of_leaves_gets_its_share_of_items(num_items: int, vacant: int, branching: int) -> None:
    order = random_order(num_items, generator=generator())
    tree = plant(order, branching=branching, num_leaves=num_items + vacant)
    assert tree.item_at_leaf[tree.item_at_leaf >= 0].tolist() == order.tolist()
    density = num_items / (num_items + vacant)
    for level in range(tree.height + 1):
        first, end = tree.leaf_ranges(np.arange(tree.level_sizes[level]), level)
        items_before = np.r_[0, np.cumsum(tree.item_at_leaf >= 0)]
        assert (np.abs((items_before[end] - items_before[first]) - density * (end - first)) <= 1 + 1e-9).all()


def test_too_few_leaves_are_refused() -> None:
    with pytest.raises(InputError, match=r"at least 3 leaves for 3 items, got 2\. Raise num_leaves"):
        plant([0, 1, 2], branching=2, num_leaves=2)


@pytest.mark.parametrize("order", [[0, 0, 1], [0, 1, 3], [[0, 1], [2, 3]], []])
@pytest.mark.parametrize("num_leaves", [None, 9])
def test_what_is_no_order_is_refused(order: list[int], num_leaves: int | None) -> None:
    with pytest.raises(InputError):
        plant(np.array(order, dtype=np.int32), branching=2, num_leaves=num_leaves)


def test_random_order_is_a_permutation_that_follows_the_generator() -> None:
    order = random_order(500, generator=generator(1))
    assert order.dtype == np.int32
    assert sorted(order.tolist()) == list(range(500))
    assert order.tolist() == random_order(500, generator=generator(1)).tolist()
    assert order.tolist() != random_order(500, generator=generator(2)).tolist()


def groups_in_order(categories: list[str | None], order: list[int]) -> list[str | None]:
    """The categories along the order, neighbours that are equal written once."""
    along = [categories[item] for item in order]
    return [category for place, category in enumerate(along) if place == 0 or along[place - 1] != category]


def test_items_of_a_category_stand_together_and_null_is_a_category() -> None:
    categories = ["b", None, "a", "b", "c", None, "a", "a"]
    seen = set()
    for seed in range(200):
        order = category_order(pl.Series(categories), generator=generator(seed))
        assert order.dtype == np.int32
        assert sorted(order.tolist()) == list(range(8))
        groups = groups_in_order(categories, order.tolist())
        assert len(groups) == len(set(groups)) == 4
        seen.add(tuple(groups))
    assert len(seen) == 24, "every order of the four groups comes up"


def test_items_within_a_category_are_shuffled() -> None:
    seen = {tuple(category_order(["a"] * 3, generator=generator(seed)).tolist()) for seed in range(100)}
    assert len(seen) == 6


@pytest.mark.parametrize("categories", [[7, 7, 3, 7], ["x", "x", "y", "x"], np.array([7, 7, 3, 7])])
def test_categories_may_be_numbers_or_words(categories: list[object]) -> None:
    order = category_order(pl.Series(categories), generator=generator()).tolist()
    assert order.index(2) in (0, 3)


def test_items_without_any_category_are_in_random_order() -> None:
    order = category_order(pl.Series([None] * 50, dtype=pl.String), generator=generator())
    assert sorted(order.tolist()) == list(range(50))
    assert order.tolist() != list(range(50))


def test_category_order_follows_the_generator() -> None:
    categories = [str(item % 7) for item in range(60)]
    orders = [category_order(categories, generator=generator(seed)).tolist() for seed in (3, 3, 4)]
    assert orders[0] == orders[1] != orders[2]


def test_clusters_become_subtrees() -> None:
    # Eight points in two far clouds, each of two nearer pairs of points: the tree of height 3 must find both.
    centres = np.array([0.0, 0.0, 100.0, 100.0, 10.0, 10.0, 110.0, 110.0])
    tree = plant(clustering_order(centres[:, None], branching=2, generator=generator()), branching=2)
    halves = tree.item_ancestors(np.arange(8), 1)
    assert len(set(halves[[0, 1, 4, 5]].tolist())) == 1
    assert len(set(halves[[2, 3, 6, 7]].tolist())) == 1
    quarters = tree.item_ancestors(np.arange(8), 2).reshape(4, 2)
    assert (quarters[:, 0] == quarters[:, 1]).all()
    assert len(set(quarters[:, 0].tolist())) == 4


@pytest.mark.parametrize("branching", [3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_each_child_takes_the_cloud_nearest_to_its_centre(branching: int, seed: int) -> None:
    # As many clouds as children, all equally far apart: taking far points instead of near ones would mix the clouds.
    cloud = np.repeat(np.arange(branching), branching)
    points = 50 * np.eye(branching)[cloud] + generator(100 + seed).normal(size=(cloud.size, branching))
    tree = plant(clustering_order(points, branching=branching, generator=generator(seed)), branching=branching)
    nodes = tree.item_ancestors(np.arange(cloud.size), 1).reshape(branching, branching)
    assert (nodes == nodes[:, :1]).all()
    assert sorted(nodes[:, 0].tolist()) == list(range(branching))


def test_a_full_cluster_passes_on_the_points_that_lose_least() -> None:
    # Five points near 0 and one at 10; half of the tree holds three, so the two rightmost of the five go with the one.
    points = np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [10.0]])
    tree = plant(clustering_order(points, branching=2, generator=generator()), branching=2)
    halves = tree.item_ancestors(np.arange(6), 1)
    assert len(set(halves[:3].tolist())) == 1
    assert len(set(halves[3:].tolist())) == 1


@settings(max_examples=25, deadline=None)
@given(num_items=st.integers(1, 60), branching=st.integers(2, 10), seed=st.integers(0, 1000), distinct=st.booleans())
def test_clustering_is_a_permutation_for_any_size(num_items: int, branching: int, seed: int, distinct: bool) -> None:
    vectors = generator(seed).normal(size=(num_items, 3)) if distinct else np.zeros((num_items, 3))
    order = clustering_order(vectors, branching=branching, generator=generator(seed))
    assert order.dtype == np.int32
    assert sorted(order.tolist()) == list(range(num_items))


@pytest.mark.parametrize("branching", [2, 3, 5])
def test_clustering_keeps_similar_items_together(branching: int) -> None:
    vectors = generator(5).normal(size=(120, 4))

    def scatter(order: np.ndarray) -> float:
        tree = plant(order, branching=branching)
        node = tree.item_ancestors(np.arange(120), tree.height - 1)
        means = np.stack([np.bincount(node, column) for column in vectors.T]) / np.bincount(node)
        return float(((vectors.T - means[:, node]) ** 2).sum())

    clustered = scatter(clustering_order(vectors, branching=branching, generator=generator()))
    assert clustered < 0.6 * scatter(random_order(120, generator=generator()))


def test_clustering_follows_the_generator() -> None:
    vectors = generator(9).normal(size=(90, 4)).astype(np.float32)
    orders = [clustering_order(vectors, branching=3, generator=generator(seed)).tolist() for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def unit(vector: Float64Array, otherwise: Float64Array) -> Float64Array:
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else otherwise


def clustering_node_by_node(vectors: Float64Array, *, branching: int, seed: int) -> list[int]:
    """`clustering_order` in plain loops, with the same draws."""
    draws = generator(seed)
    shape = TreeShape(branching, len(vectors))
    order = random_order(len(vectors), generator=draws)
    for level in range(shape.height - 1):
        directions = draws.standard_normal((shape.level_sizes[level], vectors.shape[1]), dtype=np.float32)
        divided = []
        for node, start in enumerate(directions.astype(np.float64)):
            [first], [end] = shape.leaf_ranges(np.array([node]), level)
            children = node * branching + np.arange(branching)
            child_first, child_end = (bounds - first for bounds in shape.leaf_ranges(children, level + 1))
            points = vectors[order[first:end]]
            centred, direction = points - points.mean(axis=0), start
            for _ in range(POWER_STEPS):
                direction = unit(centred.T @ (centred @ direction), direction)
            along = np.argsort(centred @ direction)
            for _ in range(DIVIDING_STEPS - 1):
                means = [centred[along[a:b]].mean(axis=0) for a, b in zip(child_first, child_end, strict=True)]
                sides = np.arange(branching) - (branching - 1) / 2
                direction = unit(sides @ np.array(means), direction)
                along = np.argsort(centred @ direction)
            divided.append(order[first:end][along])
        order = np.concatenate(divided)
    return [int(item) for item in order]


@pytest.mark.parametrize("branching", [2, 3, 4])
@pytest.mark.parametrize("num_items", [1, 7, 23, 50])
@pytest.mark.parametrize("seed", range(3))
def test_all_nodes_of_a_level_together_equal_one_after_another(branching: int, num_items: int, seed: int) -> None:
    """Far from the origin, where a direction would be wrong that is not taken from a node's own middle."""
    vectors = generator(seed + 7).normal(size=(num_items, 3)) + np.array([40.0, -20.0, 0.0])
    order = clustering_order(vectors, branching=branching, generator=generator(seed))
    assert order.tolist() == clustering_node_by_node(vectors, branching=branching, seed=seed)


@pytest.mark.parametrize("scale", [2.0**-28, 2.0**20])
def test_the_length_of_vectors_does_not_matter(scale: float) -> None:
    vectors = generator(4).normal(size=(60, 16))
    orders = [clustering_order(scaled, branching=2, generator=generator()) for scaled in (vectors, scale * vectors)]
    assert orders[0].tolist() == orders[1].tolist()


def test_clustering_can_be_stopped_before_each_level_that_is_divided() -> None:
    """Sixteen items in twos: the levels of 1, 2 and 4 nodes are divided; the last one has two leaves per node."""
    vectors = generator().normal(size=(16, 2))
    steps: list[int] = []

    def stop_at(last: int) -> None:
        steps.append(len(steps))
        if len(steps) == last:
            raise KeyboardInterrupt

    clustering_order(vectors, branching=2, generator=generator(), on_step=lambda: stop_at(99))
    assert len(steps) == 3
    steps.clear()
    with pytest.raises(KeyboardInterrupt):
        clustering_order(vectors, branching=2, generator=generator(), on_step=lambda: stop_at(2))
    assert len(steps) == 2


def test_vectors_that_are_not_finite_are_refused() -> None:
    vectors = np.zeros((4, 2))
    vectors[2, 1] = np.nan
    with pytest.raises(InputError, match="infinity for 1 items, first for item 2"):
        clustering_order(vectors, branching=2, generator=generator())


@pytest.mark.parametrize("vectors", [np.zeros(4), np.zeros((0, 3)), np.array([["a"]])])
def test_what_is_no_table_of_vectors_is_refused(vectors: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"table \(items, size\) of numbers"):
        clustering_order(vectors, branching=2, generator=generator())
