"""Vectors of inner nodes against what they stand for: the best leaf below."""

import numpy as np
import pytest

from beamtree.model.embedding_init import node_means
from beamtree.model.guide import inner_vectors
from beamtree.tree.build import clustering_order, plant
from beamtree.tree.item_tree import ItemTree

WIDTH = 6


def random_items(num_items: int, *, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(num_items, WIDTH)).astype(np.float32)


def best_below(items: np.ndarray, expectations: np.ndarray, tree: ItemTree) -> np.ndarray:
    """The highest score of an item below each inner node (inner nodes, histories), one by one."""
    scores = items @ expectations.T
    best = []
    for level in range(tree.height):
        for node in range(int(tree.level_sizes[level])):
            (first,), (end,) = tree.leaf_ranges([node], level)
            below = [item for item in tree.item_at_leaf[first:end] if item >= 0]
            best.append(scores[below].max(axis=0) if below else np.zeros(len(expectations)))
    return np.array(best)


@pytest.mark.parametrize(("num_items", "branching", "num_leaves"), [(33, 2, 33), (20, 3, 31), (9, 2, 40)])
def test_they_come_nearer_to_the_best_leaf_than_means(num_items: int, branching: int, num_leaves: int) -> None:
    items, expectations = random_items(num_items), random_items(400, seed=1) + np.float32(0.5)
    tree = plant(np.arange(num_items), branching=branching, num_leaves=num_leaves)
    wanted = best_below(items, expectations, tree)
    inner = inner_vectors(items, expectations, tree)
    means = node_means(tree, items)[: len(inner)]
    missed, missed_by_means = (((vectors @ expectations.T - wanted) ** 2).sum(axis=1) for vectors in (inner, means))
    several_below = ((means @ expectations.T - wanted) ** 2).sum(axis=1) > 1e-3
    assert (missed[several_below] < missed_by_means[several_below]).all()
    assert (missed[~several_below] < 1e-2).all()


def test_a_node_above_equal_items_has_their_vector() -> None:
    items = np.repeat(random_items(4), 4, axis=0)
    inner = inner_vectors(items, random_items(50, seed=2), plant(np.arange(16), branching=2))
    assert np.allclose(inner[3:7], random_items(4), atol=1e-5)


def test_nothing_stands_below_a_vacant_node() -> None:
    vacant = np.full(8, -1)
    vacant[:3] = [2, 0, 1]
    inner = inner_vectors(random_items(3), random_items(20, seed=3), ItemTree(2, vacant))
    assert inner.shape == (7, WIDTH)
    assert (inner[2] == 0).all()
    assert np.isfinite(inner).all()


def test_without_histories_they_are_means() -> None:
    items, tree = random_items(12), plant(np.arange(12), branching=2)
    none = np.empty((0, WIDTH), dtype=np.float32)
    assert (inner_vectors(items, none, tree) == node_means(tree, items)[: tree.level_offsets[tree.height]]).all()


def test_a_narrow_beam_finds_what_a_scan_finds() -> None:
    items, expectations = random_items(1024), random_items(600, seed=4) + np.float32(0.5)
    tree = plant(clustering_order(items, branching=2, generator=np.random.default_rng(0)), branching=2)

    def share_found(inner: np.ndarray) -> float:
        found = []
        for expected in expectations[500:]:
            nodes = np.arange(32)
            for level in range(5, tree.height + 1):
                table = items[tree.item_at_leaf] if level == tree.height else inner[tree.level_offsets[level] :]
                scores = table[nodes] @ expected
                nodes = nodes[np.argsort(-scores)[:12]]
                if level < tree.height:
                    nodes = np.sort(np.concatenate([2 * nodes, 2 * nodes + 1]))
            wanted = set(np.argsort(-(items @ expected))[:10].tolist())
            found.append(len(wanted & set(tree.item_at_leaf[nodes].tolist())) / 10)
        return float(np.mean(found))

    guided = inner_vectors(items, expectations[:500], tree)
    assert share_found(guided) > share_found(node_means(tree, items)) + 0.02


def test_it_can_be_stopped() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inner_vectors(random_items(8), random_items(5, seed=5), plant(np.arange(8), branching=2), on_step=stop)
