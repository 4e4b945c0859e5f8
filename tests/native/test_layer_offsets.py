"""What requests add to the first layer of the attention network: scores, draws, gradients and relearning with it."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("beamtree.native._kernels")

from beamtree import native
from beamtree.native import _kernels
from beamtree.native.attention import AttentionArrays
from beamtree.native.relearn import add_candidate_scores
from beamtree.native.score import KernelScore
from beamtree.native.training import Dropout, Gradients, Negatives, learn_batch
from tests.native.kernel_steps import draw_candidates, dropout_factors, learn_candidates, score_rows
from tests.native.plain_network import PAPER, Normalisation, Shape, candidate_loss, random_weights, scores
from tests.native.small_models import asked_by, random_attention, random_histories, random_tree
from tests.native.test_network import pack
from tests.native.test_training import SHAPES, history_rows_of

SHAPE = Shape()
NORMALISATIONS = pytest.mark.parametrize("normalisation", ["none", "layer"])


@NORMALISATIONS
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_scores_are_those_of_the_formulas(shape: Shape, normalisation: Normalisation) -> None:
    shape = dataclasses.replace(shape, normalisation=normalisation)
    generator = np.random.default_rng(2)
    weights = random_weights(shape, seed=4)
    table = generator.normal(size=(40, shape.width)).astype(np.float32)
    history = generator.integers(0, 40, shape.history)
    offset = generator.normal(size=shape.mlp[0]).astype(np.float32)
    found = score_rows(
        AttentionArrays(pack(weights, shape), table), np.arange(40), history_rows=history, layer_offset=offset
    )
    expected = scores(
        weights,
        shape,
        torch.from_numpy(table[history])[None],
        torch.ones(1, shape.history, dtype=torch.bool),
        torch.from_numpy(table)[None],
        layer_offsets=torch.from_numpy(offset)[None],
    )[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@NORMALISATIONS
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_gradients_are_those_of_autograd(shape: Shape, normalisation: Normalisation, rate: float) -> None:
    shape = dataclasses.replace(shape, normalisation=normalisation)
    generator, dtype = np.random.default_rng(3), torch.float64
    weights = {name: array.requires_grad_() for name, array in random_weights(shape, seed=8, dtype=dtype).items()}
    table = torch.from_numpy(generator.normal(size=(50, shape.width))).requires_grad_()
    offsets = torch.from_numpy(generator.normal(size=(6, shape.mlp[0]))).requires_grad_()
    given: dict[str, Any] = {
        "node_rows": generator.integers(0, 50, (6, 9)),
        "log_correction": generator.normal(size=(6, 9)),
        "history_rows": generator.integers(-1, 50, (6, shape.history)),
    }
    given["history_rows"][0] = -1
    row_weights = generator.random(6)
    row_weights[3] = 0.0
    dropout = Dropout(rate, seed=99)
    masks = [dropout_factors(dropout, row=row, columns=9, units=shape.mlp[0]) for row in range(6)]
    loss = candidate_loss(
        weights,
        shape,
        node_table=table,
        history_table=table,
        row_weights=row_weights,
        layer_offsets=offsets,
        dropout_factors=torch.from_numpy(np.stack(masks)).to(dtype),
        **given,
    )
    loss.backward()
    found = learn_candidates(
        AttentionArrays(pack(weights, shape), table),
        weights=row_weights,
        layer_offsets=offsets.detach().numpy(),
        dropout=dropout,
        **given,
    )
    assert found.loss == pytest.approx(loss.item(), rel=1e-9)
    assert found.layer_offsets is not None
    assert offsets.grad is not None
    np.testing.assert_allclose(found.layer_offsets, offsets.grad, atol=1e-9)
    np.testing.assert_array_equal(found.layer_offsets[3], 0.0, err_msg="a row without weight")
    for name, array in weights.items():
        assert array.grad is not None
        scale = 1 + float(array.grad.abs().max())
        np.testing.assert_allclose(found.weights[name], array.grad, atol=1e-9 * scale, err_msg=name)


@pytest.mark.parametrize("sampler", ["uniform", "top_down"])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_batch_draws_and_learns_with_them(sampler: Any, separate: bool, rate: float) -> None:
    """Each instance's gradient is the sum over its levels of what the drawn candidates give; same for any threads."""
    generator = np.random.default_rng(5)
    tree = random_tree(generator, items=60, vacant=10)
    attention, _ = random_attention(generator, tree, SHAPE, separate=separate)
    histories = random_histories(generator, tree, SHAPE, count=12)
    targets = generator.integers(0, 60, 12).astype(np.int32)
    offsets = generator.normal(size=(12, SHAPE.mlp[0])).astype(np.float32)
    negatives, dropout = Negatives(np.full(tree.height, 5), sampler), Dropout(rate, seed=4)
    drawn: dict[str, Any] = {"histories": histories, "negatives": negatives, "seed": 9, "dropout": dropout}
    node_rows, correction = draw_candidates(attention, tree, targets=targets, layer_offsets=offsets, **drawn)
    plain_rows, plain_correction = draw_candidates(attention, tree, targets=targets, **drawn)
    is_same = node_rows.shape == plain_rows.shape and bool((node_rows == plain_rows).all())
    assert is_same == (sampler == "uniform"), "draws down the tree go by scores with the offsets"
    assert sampler == "top_down" or (correction == plain_correction).all()

    def step() -> Gradients:
        return learn_batch(attention, tree, targets=targets[:, None], layer_offsets=offsets, **drawn)

    found = step()
    counted = (node_rows[:, 0] >= 0).astype(np.float32)
    judged = learn_candidates(
        attention,
        node_rows=node_rows,
        log_correction=correction,
        history_rows=history_rows_of(tree, histories, separate=separate),
        weights=counted,
        layer_offsets=np.repeat(offsets, tree.height, axis=0),
    )
    assert found.layer_offsets is not None
    assert judged.layer_offsets is not None
    if rate == 0.0:
        assert found.loss == pytest.approx(judged.loss, rel=1e-4)
        summed = judged.layer_offsets.reshape(12, tree.height, -1).sum(axis=1)
        np.testing.assert_allclose(found.layer_offsets, summed, atol=1e-5)
    before = native.threads()
    try:
        for threads in (1, 3):
            native.set_threads(threads)
            again = step()
            assert again.layer_offsets is not None
            assert again.layer_offsets.tobytes() == found.layer_offsets.tobytes()
            assert again.nodes.values.tobytes() == found.nodes.values.tobytes()
    finally:
        native.set_threads(before)


def test_none_are_the_same_bytes_as_zeros_and_have_no_gradient() -> None:
    generator = np.random.default_rng(6)
    tree = random_tree(generator, items=30)
    attention, _ = random_attention(generator, tree, SHAPE)
    given: dict[str, Any] = {
        "histories": random_histories(generator, tree, SHAPE, count=8),
        "targets": generator.integers(0, 30, (8, 1)).astype(np.int32),
        "negatives": Negatives(np.full(tree.height, 4), "top_down"),
        "seed": 2,
    }
    zeros = np.zeros((8, SHAPE.mlp[0]), dtype=np.float32)
    plain, with_zeros = (learn_batch(attention, tree, **given, layer_offsets=offsets) for offsets in (None, zeros))
    assert plain.layer_offsets is None
    assert with_zeros.layer_offsets is not None
    assert np.abs(with_zeros.layer_offsets).max() > 0.0
    assert plain.loss == with_zeros.loss
    assert plain.nodes.values.tobytes() == with_zeros.nodes.values.tobytes()
    for name, gradient in plain.weights.items():
        assert gradient.tobytes() == with_zeros.weights[name].tobytes(), name


def test_places_in_a_new_tree_are_scored_with_them() -> None:
    generator = np.random.default_rng(7)
    tree = random_tree(generator, items=40)
    attention, _ = random_attention(generator, tree, SHAPE)
    histories = random_histories(generator, tree, SHAPE, count=10)
    targets = generator.integers(0, 40, 10).astype(np.int32)
    offsets = generator.normal(size=(10, SHAPE.mlp[0])).astype(np.float32)
    level = 2
    nodes = np.arange(tree.level_sizes[level]) + tree.level_offsets[level]
    expected = np.zeros((40, len(nodes)))
    for history, target, offset in zip(histories, targets, offsets, strict=True):
        ancestors = tree.item_ancestors(history, level)
        rows = np.where(ancestors >= 0, ancestors + tree.level_offsets[level], -1)
        scored = score_rows(attention, nodes, history_rows=rows, layer_offset=offset).astype(np.float64)
        expected[target] += scored - np.log(np.exp(scored).sum())
    sums = np.zeros((40, len(nodes)))
    add_candidate_scores(
        attention,
        sums,
        tree=tree,
        histories=histories,
        targets=targets,
        group_of_item=np.zeros(40, dtype=np.int64),
        group_level=0,
        candidate_level=level,
        layer_offsets=offsets,
    )
    np.testing.assert_allclose(sums, expected, atol=1e-4)


def test_other_widths_are_refused() -> None:
    generator = np.random.default_rng(8)
    tree = random_tree(generator, items=30)
    attention, _ = random_attention(generator, tree, PAPER)
    histories = random_histories(generator, tree, PAPER, count=2)
    targets = np.zeros((2, 1), dtype=np.int32)
    negatives = Negatives(np.full(tree.height, 4))
    for shape in ((2, 127), (3, 128)):
        wrong = np.zeros(shape, dtype=np.float32)
        with pytest.raises(ValueError, match="layer_offsets: expected one per row, of the first layer's width"):
            learn_batch(
                attention, tree, histories=histories, targets=targets, negatives=negatives, seed=0, layer_offsets=wrong
            )
        score = KernelScore(tree, attention=attention)
        plain = asked_by(histories)
        asked = _kernels.Requests(
            plain.histories.items,
            plain.histories.starts,
            plain.histories.ends,
            allowed=None,
            excluded_items=None,
            excluded_offsets=None,
            tower_offsets=None,
            layer_offsets=wrong,
        )
        with pytest.raises(ValueError, match="layer_offsets: expected one per request, rows of 128 values"):
            score.exact_scan(asked, k=1)
