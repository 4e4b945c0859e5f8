import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

pytest.importorskip("beamtree.native._kernels")

from beamtree import native
from beamtree.native.attention import AttentionArrays
from beamtree.native.training import (
    Dropout,
    Gradients,
    Negatives,
    PathStart,
    RowGradients,
    adam_rows,
    learn_batch,
)
from beamtree.training.rows import RowAdam
from beamtree.tree.item_tree import ItemTree
from tests.native.kernel_steps import draw_candidates, dropout_factors, learn_candidates
from tests.native.plain_network import PAPER, Normalisation, Shape, candidate_loss, random_weights, scores
from tests.native.small_models import random_attention, random_histories, random_tree
from tests.native.test_network import pack

SHAPES = {
    "small": Shape(),
    "one of each": Shape(windows=(1,), width=1, attention=1, mlp=(1, 1, 1)),
    "odd": Shape(windows=(2, 1, 4), width=9, attention=17, mlp=(13, 9, 3)),
    "one layer": Shape(mlp=(11,)),
    "five layers": Shape(windows=(2, 1), width=3, attention=5, mlp=(9, 8, 5, 3, 2)),
    "paper": PAPER,
}


def dense(gradients: RowGradients, *, rows: int) -> np.ndarray:
    assert all(first < second for first, second in pairwise(gradients.rows))
    full = np.zeros((rows, gradients.values.shape[1]), dtype=gradients.values.dtype)
    full[gradients.rows] = gradients.values
    return full


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normalisation", ["none", "layer"])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("columns", "rate"), [(2, 0.0), (9, 0.0), (40, 0.0), (9, 0.3)])
def test_candidates_give_the_loss_and_gradients_of_autograd(
    shape: Shape, normalisation: Normalisation, separate: bool, dtype: torch.dtype, columns: int, rate: float
) -> None:
    shape = dataclasses.replace(shape, normalisation=normalisation)
    generator = np.random.default_rng(columns)
    numpy_dtype = np.float32 if dtype == torch.float32 else np.float64
    weights = {name: array.requires_grad_() for name, array in random_weights(shape, seed=8, dtype=dtype).items()}
    node_table = torch.from_numpy(generator.normal(size=(50, shape.width))).to(dtype).requires_grad_()
    item_table = torch.from_numpy(generator.normal(size=(30, shape.width))).to(dtype).requires_grad_()
    node_rows = generator.integers(0, 50, (6, columns))
    if rate == 0.0:
        node_rows[:, 1:][generator.random((6, columns - 1)) < 0.3] = -1
    node_rows[5, 1:] = -1
    history_rows = generator.integers(0, 30, (6, shape.history))
    history_rows[0] = -1
    history_rows[1] = 4
    history_rows[2, : shape.history // 2] = -1
    correction = generator.normal(size=node_rows.shape).astype(numpy_dtype)
    row_weights = generator.random(6).astype(numpy_dtype)
    row_weights[3] = 0.0
    dropout = Dropout(rate, seed=99)
    factors = None
    if rate > 0:
        masks = [dropout_factors(dropout, row=row, columns=columns, units=shape.mlp[0]) for row in range(6)]
        factors = torch.from_numpy(np.stack(masks)).to(dtype)

    loss = candidate_loss(
        weights,
        shape,
        node_table=node_table,
        history_table=item_table if separate else node_table,
        node_rows=node_rows,
        log_correction=correction,
        history_rows=history_rows,
        row_weights=row_weights,
        dropout_factors=factors,
    )
    loss.backward()
    found = learn_candidates(
        AttentionArrays(pack(weights, shape), node_table, item_table if separate else None),
        node_rows=node_rows,
        log_correction=correction,
        history_rows=history_rows,
        weights=row_weights,
        dropout=dropout,
    )
    tolerance = 2e-4 if dtype == torch.float32 else 1e-9
    assert found.loss == pytest.approx(loss.item(), rel=tolerance)
    for name, array in weights.items():
        assert array.grad is not None
        scale = 1 + float(array.grad.abs().max())
        np.testing.assert_allclose(found.weights[name], array.grad, atol=tolerance * scale, err_msg=name)
    assert node_table.grad is not None
    np.testing.assert_allclose(dense(found.nodes, rows=50), node_table.grad, atol=10 * tolerance)
    if separate:
        assert item_table.grad is not None
        np.testing.assert_allclose(dense(found.items, rows=30), item_table.grad, atol=10 * tolerance)
    else:
        assert found.items.rows.size == 0


def test_dropout_drops_the_share_it_is_asked_to() -> None:
    factors = dropout_factors(Dropout(0.25, seed=3), row=17, columns=200, units=128)
    assert set(np.unique(factors)) == {np.float32(0), np.float32(1 / 0.75)}
    assert np.mean(factors == 0) == pytest.approx(0.25, abs=0.02)
    again = dropout_factors(Dropout(0.25, seed=3), row=17, columns=200, units=128)
    np.testing.assert_array_equal(factors, again)
    other_row = dropout_factors(Dropout(0.25, seed=3), row=18, columns=200, units=128)
    assert np.mean(factors == other_row) < 0.8


def history_rows_of(tree: ItemTree, histories: np.ndarray, *, separate: bool) -> np.ndarray:
    if separate:
        return np.repeat(histories.astype(np.int64), tree.height, axis=0)
    levels = [
        np.where(histories >= 0, tree.item_ancestors(histories, level) + tree.level_offsets[level], -1)
        for level in range(1, tree.height + 1)
    ]
    return np.ascontiguousarray(np.stack(levels, axis=1).reshape(-1, histories.shape[1]))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sampler", ["uniform", "top_down"])
@pytest.mark.parametrize("start", ["level", "root", "every"])
@pytest.mark.parametrize("vacant", [0, 60])
def test_a_batch_gives_what_its_drawn_candidates_give(seed: int, sampler: str, start: PathStart, vacant: int) -> None:
    generator = np.random.default_rng(seed)
    shape = Shape(normalisation="layer" if seed % 2 else "none")
    tree = random_tree(generator, items=int(generator.integers(2, 300)), vacant=vacant, branching=2 + seed % 4)
    attention, _ = random_attention(generator, tree, shape, separate=seed % 3 == 0)
    histories = random_histories(generator, tree, shape, count=7)
    targets = generator.integers(0, tree.num_items, 7).astype(np.int32)
    weights = generator.random((7, tree.height)).astype(np.float32)
    weights[1, : tree.height // 2] = 0.0
    weights[2] = 0.0
    assert sampler in ("uniform", "top_down")
    negatives = Negatives(
        counts=np.full(tree.height, 5),
        sampler="uniform" if sampler == "uniform" else "top_down",
        start=start,
    )
    found = learn_batch(
        attention,
        tree,
        histories=histories,
        targets=targets[:, None],
        negatives=negatives,
        seed=seed,
        weights=weights[:, None],
    )
    node_rows, correction = draw_candidates(
        attention, tree, histories=histories, targets=targets, negatives=negatives, seed=seed
    )
    expected = learn_candidates(
        attention,
        node_rows=node_rows,
        log_correction=correction,
        history_rows=history_rows_of(tree, histories, separate=attention.item_table is not None),
        weights=weights.ravel(),
    )
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    for name, array in expected.weights.items():
        np.testing.assert_allclose(found.weights[name], array, atol=1e-5 * (1 + np.abs(array).max()), err_msg=name)
    np.testing.assert_array_equal(found.nodes.rows, expected.nodes.rows)
    np.testing.assert_allclose(found.nodes.values, expected.nodes.values, atol=1e-5)
    np.testing.assert_array_equal(found.items.rows, expected.items.rows)
    np.testing.assert_allclose(found.items.values, expected.items.values, atol=1e-5)


def as_bytes(gradients: Gradients) -> bytes:
    arrays = [*gradients.weights.values(), gradients.nodes.rows, gradients.nodes.values, gradients.items.values]
    return np.float64(gradients.loss).tobytes() + b"".join(array.tobytes() for array in arrays)


@pytest.mark.parametrize("sampler", ["uniform", "top_down"])
def test_a_step_gives_the_same_bytes_for_any_number_of_threads(sampler: str) -> None:
    generator = np.random.default_rng(0)
    tree = random_tree(generator, items=900)
    attention, _ = random_attention(generator, tree, Shape(), separate=True)
    histories = random_histories(generator, tree, Shape(), count=40)
    targets = generator.integers(0, tree.num_items, 40).astype(np.int32)
    negatives = Negatives(np.full(tree.height, 12), "uniform" if sampler == "uniform" else "top_down")
    before = native.threads()
    seen = set()
    try:
        for threads in (1, 2, 3, 2):
            native.set_threads(threads)
            step = learn_batch(
                attention,
                tree,
                histories=histories,
                targets=targets[:, None],
                negatives=negatives,
                seed=11,
                dropout=Dropout(0.1, seed=4),
            )
            seen.add(as_bytes(step))
    finally:
        native.set_threads(before)
    assert len(seen) == 1


def rising_attention(logits: list[float]) -> AttentionArrays:
    """A network over one-dimensional embeddings whose score is the embedding itself: the logits of the table's rows."""
    shape = Shape(windows=(1,), width=1, attention=1, mlp=(1, 1, 1))
    weights = {name: torch.zeros_like(array) for name, array in random_weights(shape, seed=0).items()}
    weights["mlp.0.weight"][0, 1] = 1.0
    for layer in (1, 2, 3):
        weights[f"mlp.{layer}.weight"][:] = 1.0
    weights["mlp.slopes"][:] = 1.0
    table = np.array(logits, dtype=np.float32)[:, None]
    return AttentionArrays(pack(weights, shape), table)


def test_top_down_probabilities_are_products_along_the_path() -> None:
    """Two levels of sampling below the root with known softmaxes: q and its correction worked out by hand."""
    tree = ItemTree(2, np.arange(4, dtype=np.int32))
    left, right = math.log(0.3), math.log(0.7)
    leaves = [math.log(p) for p in (0.6, 0.4, 0.2, 0.8)]
    attention = rising_attention([0.0, left, right, *leaves])
    histories, targets = np.zeros((1, 1), dtype=np.int32), np.zeros(1, dtype=np.int32)
    negatives = Negatives(np.array([1, 2]), "top_down", "root")
    q = {3: 0.18, 4: 0.12, 5: 0.14, 6: 0.56}
    for seed in range(40):
        node_rows, correction = draw_candidates(
            attention, tree, histories=histories, targets=targets, negatives=negatives, seed=seed
        )
        np.testing.assert_array_equal(node_rows[0, :2], [1, 2])
        drawn = [int(row) for row in node_rows[1, 1:] if row >= 0]
        if node_rows[1, 0] < 0:
            continue
        assert node_rows[1, 0] == 3
        once = [math.log(q[row] / (1 - q[3])) for row in drawn]
        found = correction[1, 1 : 1 + len(drawn)]
        if len(drawn) == 2:
            np.testing.assert_allclose(found, np.add(once, math.log(2)), atol=1e-5)
        else:
            assert np.isclose(found[0], once[0], atol=1e-5)


@pytest.mark.parametrize("start", ["level", "root", "every"])
def test_draws_follow_their_probabilities(start: PathStart) -> None:
    tree = ItemTree(2, np.arange(8, dtype=np.int32))
    generator = np.random.default_rng(5)
    logits = generator.normal(size=15)
    attention = rising_attention(list(logits))
    count = 4000
    histories, targets = np.zeros((count, 1), dtype=np.int32), np.full(count, 3, dtype=np.int32)
    counts = np.array([3, 2, 3] if start == "every" else [3, 3, 3])  # every: the level above is drawn too
    negatives = Negatives(counts, "top_down", start)
    node_rows, correction = draw_candidates(
        attention, tree, histories=histories, targets=targets, negatives=negatives, seed=1
    )

    def softmax(values: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(values) / np.exp(values).sum())

    pairs = [np.concatenate([softmax(logits[7 + i : 9 + i]) for i in range(0, 8, 2)])]
    if start == "root":
        level1 = softmax(logits[1:3])
        level2 = np.concatenate([softmax(logits[3:5]), softmax(logits[5:7])]) * np.repeat(level1, 2)
        q = pairs[0] * np.repeat(level2, 2)
    else:
        q = softmax(logits[7:15])
    leaves = node_rows.reshape(count, 3, -1)[:, 2]
    corrections = correction.reshape(count, 3, -1)[:, 2]
    shares = np.zeros(8)
    for rows, values in zip(leaves, corrections, strict=True):
        nodes = rows[1:][rows[1:] >= 0] - 7
        if nodes.size == 0:
            continue
        # The correction is ln(M_eff q / (1 - q_pos)) - ln(times), so this is times / M_eff, which adds up to 1.
        share = q[nodes] / (1 - q[3]) / np.exp(values[1 : 1 + nodes.size])
        assert share.sum() == pytest.approx(1.0, rel=1e-4)
        shares[nodes] += share
    expected = q / (1 - q[3])
    expected[3] = 0.0
    np.testing.assert_allclose(shares / shares.sum(), expected, atol=0.02)


@pytest.mark.parametrize("with_dropout", [False, True])
def test_draws_go_by_scores_with_dropout_where_asked_to(with_dropout: bool) -> None:
    """On the first sampled level, whose draws come from its softmax."""
    shape, dropout = Shape(), Dropout(0.4, seed=8)
    generator = np.random.default_rng(9)
    tree = ItemTree(2, np.arange(8, dtype=np.int32))
    weights = random_weights(shape, seed=2, dtype=torch.float32)
    items = generator.normal(size=(8, shape.width)).astype(np.float32)
    nodes = generator.normal(size=(15, shape.width)).astype(np.float32)
    attention = AttentionArrays(pack(weights, shape), nodes, items)
    histories = random_histories(generator, tree, shape, count=20)
    targets = generator.integers(0, 8, 20).astype(np.int32)
    node_rows, correction = draw_candidates(
        attention,
        tree,
        histories=histories,
        targets=targets,
        negatives=Negatives(np.full(3, 5), "top_down", with_dropout=with_dropout),
        seed=1,
        dropout=dropout,
    )
    present = torch.from_numpy(histories >= 0)
    vectors = torch.from_numpy(items[np.maximum(histories, 0)])
    leaves = torch.from_numpy(nodes[7:]).expand(20, 8, -1)
    masks = [dropout_factors(dropout, row=3 * i + 2, columns=8, units=shape.mlp[0]) for i in range(20)]
    factors = torch.from_numpy(np.stack(masks)) if with_dropout else None
    q = scores(weights, shape, vectors, present, leaves, dropout_factors=factors).softmax(dim=1).detach().numpy()
    for i, target in enumerate(targets):
        row = 3 * i + 2
        drawn = node_rows[row, 1:][node_rows[row, 1:] >= 0] - 7
        # The correction is ln(M_eff q / (1 - q_pos)) - ln(times), so this is times / M_eff, which adds up to 1.
        share = q[i, drawn] / (1 - q[i, target]) / np.exp(correction[row, 1 : 1 + drawn.size])
        assert share.sum() == pytest.approx(1.0 if drawn.size else 0.0, rel=1e-3)


def test_uniform_draws_merge_repeats_and_leave_out_the_positive() -> None:
    generator = np.random.default_rng(6)
    tree = random_tree(generator, items=40, vacant=24)
    attention, _ = random_attention(generator, tree, Shape())
    histories = random_histories(generator, tree, Shape(), count=50)
    targets = generator.integers(0, 40, 50).astype(np.int32)
    counts = np.array([4, 4, 9, 30, 12, 20])
    assert tree.height == 6
    node_rows, correction = draw_candidates(
        attention, tree, histories=histories, targets=targets, negatives=Negatives(counts), seed=2
    )
    for level in range(1, 7):
        rows = node_rows.reshape(50, 6, -1)[:, level - 1]
        values = correction.reshape(50, 6, -1)[:, level - 1]
        occupied = set(np.flatnonzero(tree.occupied(level)) + tree.level_offsets[level])
        positives = tree.item_ancestors(targets, level) + tree.level_offsets[level]
        np.testing.assert_array_equal(rows[:, 0], positives)
        for row, value in zip(rows, values, strict=True):
            drawn = row[row >= 0]
            assert len(set(drawn)) == len(drawn)
            assert set(drawn) <= occupied
            if len(occupied) <= counts[level - 1] + 1:
                assert set(drawn) == occupied
                assert not value.any()
            else:
                # The correction is ln(M_eff / (N - 1)) - ln(times), and the times add up to M_eff.
                assert np.exp(-value[1 : len(drawn)]).sum() == pytest.approx(len(occupied) - 1, rel=1e-4)


@pytest.mark.parametrize("decoupled", [False, True])
def test_row_adam_equals_its_torch_counterpart(decoupled: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(40, 7, generator=generator)
    mine, first, second = table.clone(), torch.zeros(40, 7), torch.zeros(40, 7)
    reference = RowAdam.for_table(table, decoupled_decay=decoupled, weight_decay=0.01)
    for step in range(1, 6):
        rows = torch.randperm(40, generator=generator)[:13].sort().values
        gradients = torch.randn(13, 7, generator=generator)
        reference.step(table, rows=rows, gradients=gradients, learning_rate=0.03, step=step)
        adam_rows(
            mine,
            first_moment=first,
            second_moment=second,
            gradients=RowGradients(rows.numpy(), gradients.numpy()),
            learning_rate=0.03,
            step=step,
            weight_decay=0.01,
            decoupled_decay=decoupled,
        )
    torch.testing.assert_close(mine, table)
    torch.testing.assert_close(first, reference.first_moment)
    torch.testing.assert_close(second, reference.second_moment)


def test_row_adam_refuses_rows_that_repeat() -> None:
    table = np.zeros((3, 2), dtype=np.float32)
    with pytest.raises(ValueError, match="rows: expected to rise"):
        adam_rows(
            table,
            first_moment=table.copy(),
            second_moment=table.copy(),
            gradients=RowGradients(np.array([1, 1]), np.zeros((2, 2), dtype=np.float32)),
            learning_rate=0.1,
            step=1,
            weight_decay=0.0,
            decoupled_decay=True,
        )
