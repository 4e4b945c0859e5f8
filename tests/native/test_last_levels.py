"""Training steps on the last levels alone: what is drawn there, and how it is corrected."""

import numpy as np
import pytest

pytest.importorskip("beamtree.native._kernels")

from beamtree.native.training import Negatives, PathStart, learn_batch
from beamtree.tree.item_tree import ItemTree
from tests.native.kernel_steps import draw_candidates, learn_candidates
from tests.native.plain_network import Shape
from tests.native.small_models import random_attention, random_histories, random_tree
from tests.native.test_training import as_bytes, history_rows_of, rising_attention


def path_probabilities(tree: ItemTree, logits: np.ndarray, *, first_level: int) -> dict[int, np.ndarray]:
    """q of every node from a level on whose occupied nodes are as likely, by the softmax over occupied siblings."""
    q = {first_level: tree.occupied(first_level) / tree.occupied(first_level).sum()}
    for level in range(first_level + 1, tree.height + 1):
        odds = np.where(tree.occupied(level), np.exp(logits[tree.level_offsets[level] :][: tree.level_sizes[level]]), 0)
        begins, ends = tree.child_ranges(np.arange(tree.level_sizes[level - 1]), level - 1)
        q[level] = np.zeros(len(odds))
        for parent, begin, end in zip(q[level - 1], begins, ends, strict=True):
            if parent > 0:
                q[level][begin:end] = parent * odds[begin:end] / odds[begin:end].sum()
    return q


@pytest.mark.parametrize("first_level", [2, 3, 4])
@pytest.mark.parametrize("correct_positive", [False, True])
def test_paths_start_uniformly_and_their_probabilities_multiply(first_level: int, correct_positive: bool) -> None:
    """One draw per level: its correction is ln(q / (1 - q_pos)), which uniform draws have in any case."""
    generator = np.random.default_rng(first_level)
    tree = random_tree(generator, items=30, vacant=12, branching=3)
    assert tree.height == 4
    logits = generator.normal(size=tree.num_nodes)
    q = path_probabilities(tree, logits, first_level=first_level)
    target = 7
    node_rows, correction = draw_candidates(
        rising_attention(list(logits)),
        tree,
        histories=np.zeros((6000, 1), dtype=np.int32),
        targets=np.full(6000, target, dtype=np.int32),
        negatives=Negatives(np.ones(4, dtype=np.int64), "top_down", correct_positive=correct_positive),
        seed=3,
        first_level=first_level,
    )
    by_level = node_rows.reshape(6000, 4, -1)
    assert (by_level[:, : first_level - 1] == -1).all()
    for level in range(first_level, 5):
        positive = int(tree.item_ancestors(target, level))
        rows, corrections = by_level[:, level - 1], correction.reshape(6000, 4, -1)[:, level - 1]
        is_other = rows[:, 1] >= 0
        assert (rows[is_other, 0] == positive + tree.level_offsets[level]).all()
        drawn = rows[is_other, 1] - tree.level_offsets[level]
        is_divided = correct_positive or level == first_level
        expected = np.log(q[level][drawn] / (1 - q[level][positive] if is_divided else 1.0))
        np.testing.assert_allclose(corrections[is_other, 1], expected, atol=1e-5)
        shares = np.bincount(drawn, minlength=len(q[level])) / 6000
        shares[positive] = 1 - is_other.mean()
        np.testing.assert_allclose(shares, q[level], atol=0.025)


@pytest.mark.parametrize("first_level", [3, 4])
def test_repeated_draws_are_merged_with_their_counts(first_level: int) -> None:
    generator = np.random.default_rng(8)
    tree = random_tree(generator, items=50, vacant=9)
    logits = generator.normal(size=tree.num_nodes)
    counts = np.full(tree.height, 2**first_level - 2)  # one more would take the first level whole
    q = path_probabilities(tree, logits, first_level=first_level)
    targets = generator.integers(0, 50, 300).astype(np.int32)
    node_rows, correction = draw_candidates(
        rising_attention(list(logits)),
        tree,
        histories=np.zeros((300, 1), dtype=np.int32),
        targets=targets,
        negatives=Negatives(counts, "top_down"),
        seed=1,
        first_level=first_level,
    )
    for level in range(first_level, tree.height + 1):
        positives = tree.item_ancestors(targets, level)
        rows = node_rows.reshape(300, tree.height, -1)[:, level - 1]
        values = correction.reshape(300, tree.height, -1)[:, level - 1]
        merged = 0
        for row, value, positive in zip(rows, values, positives, strict=True):
            drawn = row[1:][row[1:] >= 0] - tree.level_offsets[level]
            assert len(set(drawn)) == len(drawn)
            # The correction is ln(M_eff q / (1 - q_pos)) - ln(times), so this is times / M_eff, which adds up to 1.
            share = q[level][drawn] / (1 - q[level][positive]) / np.exp(value[1 : 1 + len(drawn)])
            assert share.sum() == pytest.approx(1.0 if len(drawn) else 0.0, rel=1e-4)
            merged += len(drawn) > 1 and share.max() > 1.5 * share.min()
        assert merged > 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("first_level", [2, 4, 99])
@pytest.mark.parametrize(("sampler", "start"), [("uniform", "level"), ("top_down", "level"), ("top_down", "every")])
def test_a_batch_gives_what_its_drawn_candidates_give(
    seed: int, first_level: int, sampler: str, start: PathStart
) -> None:
    generator = np.random.default_rng(seed)
    shape = Shape(normalisation="layer" if seed % 2 else "none")
    tree = random_tree(generator, items=120, vacant=40 * (seed % 2), branching=2 + seed % 3)
    first_level = min(first_level, tree.height)
    attention, _ = random_attention(generator, tree, shape, separate=seed % 3 == 0)
    histories = random_histories(generator, tree, shape, count=7)
    targets = generator.integers(0, tree.num_items, 7).astype(np.int32)
    weights = generator.random((7, tree.height)).astype(np.float32)
    weights[1, :first_level] = 0.0
    weights[2] = 0.0
    negatives = Negatives(np.full(tree.height, 5), "uniform" if sampler == "uniform" else "top_down", start)
    found = learn_batch(
        attention,
        tree,
        histories=histories,
        targets=targets[:, None],
        negatives=negatives,
        seed=seed,
        weights=weights[:, None],
        first_level=first_level,
    )
    node_rows, correction = draw_candidates(
        attention, tree, histories=histories, targets=targets, negatives=negatives, seed=seed, first_level=first_level
    )
    is_learned = np.tile(np.arange(1, tree.height + 1) >= first_level, 7)
    assert (node_rows[~is_learned] == -1).all()
    assert (node_rows[is_learned, 0] >= 0).mean() > 0.8
    expected = learn_candidates(
        attention,
        node_rows=node_rows[is_learned],
        log_correction=correction[is_learned],
        history_rows=history_rows_of(tree, histories, separate=attention.item_table is not None)[is_learned],
        weights=weights.ravel()[is_learned],
    )
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    for name, array in expected.weights.items():
        np.testing.assert_allclose(found.weights[name], array, atol=1e-5 * (1 + np.abs(array).max()), err_msg=name)
    np.testing.assert_array_equal(found.nodes.rows, expected.nodes.rows)
    np.testing.assert_allclose(found.nodes.values, expected.nodes.values, atol=1e-5)
    np.testing.assert_array_equal(found.items.rows, expected.items.rows)
    np.testing.assert_allclose(found.items.values, expected.items.values, atol=1e-5)


def test_on_the_leaves_alone_top_down_draws_are_uniform_draws() -> None:
    generator = np.random.default_rng(2)
    tree = random_tree(generator, items=90, vacant=11)
    attention, _ = random_attention(generator, tree, Shape(), separate=True)
    histories = random_histories(generator, tree, Shape(), count=9)
    targets = generator.integers(0, 90, (9, 3)).astype(np.int32)
    uniform, top_down = (
        learn_batch(
            attention,
            tree,
            histories=histories,
            targets=targets,
            negatives=negatives,
            seed=4,
            first_level=tree.height,
        )
        for negatives in (Negatives(np.full(tree.height, 8)), Negatives(np.full(tree.height, 8), "top_down"))
    )
    assert as_bytes(uniform) == as_bytes(top_down)
    assert uniform.work == top_down.work


@pytest.mark.parametrize(
    ("sampler", "first_level"),
    [("uniform", 2), ("uniform", 5), ("top_down", 2), ("top_down", 4)],
)
def test_levels_above_change_nothing_where_draws_do_not_need_them(sampler: str, first_level: int) -> None:
    """Uniform draws never do, draws down the tree not where the first learned level is taken whole."""
    generator = np.random.default_rng(6)
    tree = random_tree(generator, items=64)
    attention, _ = random_attention(generator, tree, Shape())
    histories = random_histories(generator, tree, Shape(), count=5)
    targets = generator.integers(0, 64, 5).astype(np.int32)
    negatives = Negatives(np.full(tree.height, 15), "uniform" if sampler == "uniform" else "top_down")
    every, last = (
        [
            drawn.reshape(5, tree.height, -1)[:, first_level - 1 :]
            for drawn in draw_candidates(
                attention, tree, histories=histories, targets=targets, negatives=negatives, seed=5, first_level=first
            )
        ]
        for first in (1, first_level)
    )
    columns = last[0].shape[2]  # as many as the longest row needs
    assert (every[0][..., columns:] == -1).all()
    np.testing.assert_array_equal(last[0], every[0][..., :columns])
    np.testing.assert_array_equal(last[1], every[1][..., :columns])


def test_levels_that_cannot_be_learned_are_refused() -> None:
    generator = np.random.default_rng(0)
    tree = random_tree(generator, items=8)
    attention, _ = random_attention(generator, tree, Shape())
    histories = random_histories(generator, tree, Shape(), count=2)

    def learn(negatives: Negatives, *, first_level: int) -> None:
        learn_batch(
            attention,
            tree,
            histories=histories,
            targets=np.zeros((2, 1), dtype=np.int32),
            negatives=negatives,
            seed=0,
            first_level=first_level,
        )

    counts = np.full(3, 2)
    for first_level in (0, 4):
        with pytest.raises(ValueError, match="first_level: expected a level below the root"):
            learn(Negatives(counts), first_level=first_level)
    with pytest.raises(ValueError, match="paths from the root need scores on all levels"):
        learn(Negatives(counts, "top_down", "root"), first_level=2)
