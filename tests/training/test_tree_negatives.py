"""Sampling down the tree: probabilities are products of local softmaxes, and the correction says so."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from beamtree.config import PathCorrection, PathMode, PathStart
from beamtree.diagnostics.sampling import top_down_log_q
from beamtree.errors import InputError
from beamtree.model import scoring
from beamtree.model.attention import Attention
from beamtree.model.scoring import prepare_history
from beamtree.training.losses import sampled_softmax_loss
from beamtree.training.negatives import Candidates, NegativeSampler, UniformNegatives
from beamtree.training.tree_negatives import TreeNegatives, _choose
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING
from tests.small import model_settings, plain_scores, random_histories, random_tree, score_of, stirred_model
from tests.training.runs import batch_from

Float64Array = npt.NDArray[np.float64]


def level_scores(model: Attention, tree: ItemTree, history: npt.NDArray[np.int32]) -> list[Float64Array]:
    scorer = plain_scores(model, history)
    every_level = range(tree.height + 1)
    scores = [scorer(level, np.arange(tree.level_sizes[level])).astype(np.float64) for level in every_level]
    return [np.where(tree.occupied(level), scores[level], -np.inf) for level in every_level]


def path_probabilities(tree: ItemTree, scores: list[Float64Array], *, first: int) -> dict[int, Float64Array]:
    """q of every node from level `first` on, where it is the exact softmax, by the product rule."""
    q = {first: np.exp(scores[first] - np.logaddexp.reduce(scores[first]))}
    for level in range(first, tree.height):
        q[level + 1] = np.zeros(tree.level_sizes[level + 1])
        begins, ends = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
        for node, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            children = scores[level + 1][begin:end]
            if np.isfinite(children).any():
                q[level + 1][begin:end] = q[level][node] * np.exp(children - np.logaddexp.reduce(children))
    return q


def test_path_probabilities_multiply_and_each_level_sums_to_one() -> None:
    """The paper's illustration: 0.3, then 0.6, then 0.8 give 0.3, 0.18 and 0.144."""
    tree = random_tree(8, branching=2, seed=0)
    local = {1: [0.3, 0.7], 2: [0.6, 0.4, 0.5, 0.5], 3: [0.2, 0.8, 0.9, 0.1, 0.3, 0.7, 0.5, 0.5]}
    scores = [np.zeros(1)] + [np.log(local[level]) for level in (1, 2, 3)]
    of_diagnostics = [np.ones(1), *(np.exp(log_q) for log_q in top_down_log_q(scores[1:], tree=tree, start=1))]
    for q in (path_probabilities(tree, scores, first=0), of_diagnostics):
        assert [q[1][0], q[2][0], q[3][1]] == pytest.approx([0.3, 0.18, 0.144])
        assert [q[level].sum() for level in (1, 2, 3)] == pytest.approx([1.0, 1.0, 1.0])


@settings(max_examples=25, deadline=None)
@given(
    num_items=st.integers(2, 60),
    vacant=st.integers(0, 12),
    branching=st.integers(2, 5),
    count=st.integers(1, 9),
    start=st.sampled_from(["level", "root", "every"]),
    correction=st.sampled_from(["negatives", "published"]),
    last_levels=st.sampled_from([None, 1, 2, 3]),
    seed=st.integers(0, 10_000),
)
def test_corrections_are_those_of_the_product_rule(
    num_items: int,
    vacant: int,
    branching: int,
    count: int,
    start: PathStart,
    correction: PathCorrection,
    last_levels: int | None,
    seed: int,
) -> None:
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    attention_levels = None if start == "root" else last_levels
    model = stirred_model(model_settings(attention_levels=attention_levels), tree, seed=seed)
    generator = np.random.default_rng(seed)
    histories = random_histories(4, length=5, num_items=num_items, generator=generator)
    batch = batch_from(histories, generator.integers(0, num_items, size=4).astype(np.int32))
    sampler = TreeNegatives(score_of(model), count=count, start=start, correction=correction)
    candidates = sampler.draw(batch, generator=generator)

    sizes = [int(tree.occupied(level).sum()) for level in range(tree.height + 1)]
    first_level = 1 if attention_levels is None else max(1, tree.height + 1 - attention_levels)
    larger = [level for level in range(first_level, tree.height + 1) if sizes[level] > count + 1]
    is_uniform = start == "level" and 1 < first_level in larger
    assert (candidates.node_rows[: first_level - 1] == NOTHING).all()
    for instance, history in enumerate(histories):
        scores = level_scores(model, tree, history)
        if is_uniform:
            scores[first_level] = np.where(tree.occupied(first_level), 0.0, -np.inf)
        if start == "every":
            q = {level: np.exp(scores[level] - np.logaddexp.reduce(scores[level])) for level in larger}
        else:
            q = path_probabilities(tree, scores, first=0 if start == "root" else larger[0]) if larger else {}
        for level in range(first_level, tree.height + 1):
            rows = candidates.node_rows[level - 1, instance]
            nodes = rows[rows != NOTHING] - tree.level_offsets[level]
            corrections = candidates.log_correction[level - 1, instance][rows != NOTHING]
            positive = tree.item_ancestors(batch.targets[instance, 0], level)
            assert nodes[0] == positive
            assert corrections[0] == 0.0
            assert positive not in nodes[1:]
            assert tree.occupied(level)[nodes].all()
            if level not in larger:
                assert sorted(nodes) == np.flatnonzero(tree.occupied(level)).tolist()
                assert (corrections == 0.0).all()
                continue
            assert q[level].sum() == pytest.approx(1.0)
            is_divided = correction == "negatives" or (is_uniform and level == first_level)
            others = 1.0 - q[level][positive] if is_divided else 1.0
            expected = np.log(len(nodes[1:]) * q[level][nodes[1:]] / others)
            np.testing.assert_allclose(corrections[1:], expected, atol=2e-3)


@pytest.mark.parametrize("normalisation", ["none", "batch"])
def test_many_instances_are_scored_in_blocks_and_drawn_the_same(
    normalisation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = random_tree(30, branching=3, seed=1)
    model = stirred_model(model_settings(normalisation=normalisation), tree, seed=2)
    histories = random_histories(9, length=5, num_items=30, generator=np.random.default_rng(0))
    batch = batch_from(histories, np.arange(9, dtype=np.int32))

    def drawn() -> Candidates:
        sampler = TreeNegatives(score_of(model), count=3, start="every", mode="training")
        return sampler.draw(batch, generator=np.random.default_rng(1))

    prepared: list[int] = []

    def noted(*arguments: Any, **options: Any) -> Any:
        prepared.append(len(arguments[1]))
        return prepare_history(*arguments, **options)

    monkeypatch.setattr(scoring, "prepare_history", noted)
    whole = drawn()
    assert set(prepared) == {9}
    prepared.clear()
    monkeypatch.setattr(scoring, "INTERMEDIATES_AT_A_TIME", 200)
    in_blocks = drawn()
    assert max(prepared) < 9
    np.testing.assert_array_equal(in_blocks.node_rows, whole.node_rows)
    np.testing.assert_allclose(in_blocks.log_correction, whole.log_correction, atol=1e-5)


@pytest.mark.parametrize("attention_levels", [None, 2])
def test_draws_follow_the_product_rule(attention_levels: int | None) -> None:
    tree = random_tree(12, branching=3, seed=1)
    model = stirred_model(model_settings(attention_levels=attention_levels), tree, seed=2)
    history = np.array([-1, 3, 1, 4, 1], dtype=np.int32)
    repeats, count = 400, 3
    batch = batch_from(np.tile(history, (repeats, 1)), np.full(repeats, 5, dtype=np.int32))
    candidates = TreeNegatives(score_of(model), count=count).draw(batch, generator=np.random.default_rng(3))

    leaves = candidates.node_rows[-1, :, 1:] - tree.level_offsets[tree.height]
    drawn = np.bincount(leaves[leaves >= 0], minlength=12) / (repeats * count)
    scores = level_scores(model, tree, history)
    if attention_levels is not None:
        scores[2] = np.zeros(tree.level_sizes[2])
    q = path_probabilities(tree, scores, first=2)[tree.height]
    q[tree.leaf_of_item[5]] = 0.0
    np.testing.assert_allclose(drawn, q, atol=0.05)
    assert np.abs(drawn - 1 / 12).max() > 0.05


@pytest.mark.parametrize("first_level", [1, 2, 3])
def test_paths_from_the_root_need_all_levels_to_be_learned(first_level: int) -> None:
    tree = random_tree(8, branching=2, seed=1)
    score = score_of(stirred_model(model_settings(attention_levels=tree.height + 1 - first_level), tree, seed=2))
    assert min(score.learned_levels()) == first_level
    TreeNegatives(score, count=3, start="level")
    if first_level == 1:
        TreeNegatives(score, count=3, start="root")
    else:
        with pytest.raises(InputError, match=f"levels above {first_level} are not learned, got start = 'root'"):
            TreeNegatives(score, count=3, start="root")


def test_a_choice_is_always_one_of_the_choices() -> None:
    rounded = np.log(np.array([0.333333, 0.333333, 0.333333], dtype=np.float32))
    uniform = np.array([0.0, 0.3, 0.4, 0.7, np.nextafter(1.0, 0.0)])
    assert _choose(rounded, uniform=uniform).tolist() == [0, 0, 1, 2, 2]


@pytest.mark.parametrize("part", [{"dropout": 0.5}, {"normalisation": "batch"}], ids=["dropout", "batch statistics"])
def test_draws_go_by_the_model_in_training_where_asked_to(part: dict[str, Any]) -> None:
    tree = random_tree(12, branching=2, seed=6)
    model = stirred_model(model_settings(**part), tree, seed=4)
    generator = np.random.default_rng(5)
    histories = random_histories(30, length=5, num_items=12, generator=generator)
    batch = batch_from(histories, generator.integers(0, 12, size=30).astype(np.int32))
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def corrections(mode: PathMode) -> npt.NDArray[np.float32]:
        sampler = TreeNegatives(score_of(model), count=3, correction="published", mode=mode)
        return sampler.draw(batch, generator=np.random.default_rng(7)).log_correction

    in_use, in_training = corrections("evaluation"), corrections("training")
    np.testing.assert_array_equal(in_training, corrections("training"), err_msg="a function of the generator")
    assert not np.isin(in_training[in_training != 0], in_use[in_use != 0]).any()
    assert not model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_gradients_of_draws_approach_that_of_the_full_softmax_and_exact_draws_are_unbiased() -> None:
    """On the leaves, for one history many times over; a row whose every draw was the positive has no gradient."""
    tree = random_tree(27, branching=3, seed=0)
    model = stirred_model(model_settings(), tree, seed=3)
    history = np.array([-1, 3, 1, 4, 1], dtype=np.int32)
    batch = batch_from(np.tile(history, (6000, 1)), np.full(6000, 5, dtype=np.int32))
    with torch.no_grad():
        model.mlp.linear(3).weight *= 1.5 / float(level_scores(model, tree, history)[tree.height].std())
    positive = int(tree.leaf_of_item[5])
    scores = torch.from_numpy(level_scores(model, tree, history)[tree.height]).requires_grad_()
    (full,) = torch.autograd.grad(functional.cross_entropy(scores[None], torch.tensor([positive])), scores)

    def error(sampler: NegativeSampler) -> float:
        candidates = sampler.draw(batch, generator=np.random.default_rng(8))
        rows = candidates.node_rows[-1]
        leaves = torch.from_numpy(rows[(rows >= 0).sum(axis=1) > 1] - tree.level_offsets[tree.height])
        correction = torch.from_numpy(candidates.log_correction[-1][(rows >= 0).sum(axis=1) > 1])
        drawn = scores[leaves.clamp(min=0)].masked_fill(leaves < 0, -torch.inf)
        (gradient,) = torch.autograd.grad(sampled_softmax_loss(drawn, correction), scores)
        return float((gradient - full).norm() / full.norm())

    few, many = (
        [
            error(UniformNegatives(tree, counts=np.full(tree.height, count))),
            error(TreeNegatives(score_of(model), count=count)),
            error(TreeNegatives(score_of(model), count=count, start="every")),
        ]
        for count in (2, 20)
    )
    assert few[2] < 0.03 < min(few[:2])
    assert max(many) < 0.5 * min(few[:2])
