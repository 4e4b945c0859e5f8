"""The tower: a learned encoder on the leaves, any vectors above them; what it reads, what is dropped, what learns."""

from typing import Any

import numpy as np
import pytest
import torch

from beamtree.data.requests import Histories, Requests
from beamtree.errors import ArtefactError, InputError
from beamtree.fitting.computation import build_learner
from beamtree.model.attention import make_attention
from beamtree.model.next_item import NextItemModel
from beamtree.model.score import Score, build_score
from beamtree.model.torch_scorer import TorchScorer, build_torch_scorer
from beamtree.model.tower import TOWER, tower_arrays
from beamtree.retrieval.engine import Engine
from beamtree.training.learner import TorchLearner
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array
from tests.model.fresh_tower import make_tower, weighted
from tests.small import assert_same_bytes, encoder_settings, random_histories, random_tree, small_config
from tests.training.runs import ring_instances, ring_tree, take_step, training_settings

SIZES = {"width": 6, "layers": 2, "dropout": 0.0}
CONFIG = small_config(estimator=SIZES)


def next_item_model(num_items: int, *, history_length: int = 5, **changes: Any) -> NextItemModel:
    """An estimator in which no number has its special first value."""
    settings, generator = encoder_settings(**(SIZES | changes)), torch.Generator().manual_seed(2)
    model = NextItemModel(settings, num_items=num_items, history_length=history_length, generator=generator)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn(tensor.shape, generator=generator), alpha=0.3)
    return model.eval()


def inner_vectors(tree: ItemTree, *, width: int = 6) -> Float32Array:
    size = (int(tree.level_offsets[tree.height]), width)
    return np.random.default_rng(3).normal(size=size).astype(np.float32)


def named(arrays: dict[str, AnyArray]) -> dict[str, AnyArray]:
    return {f"{TOWER}/{name}": array for name, array in arrays.items()}


@pytest.mark.parametrize("encoder", ["gru", "self-attention"])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("history_length", [1, 3, 8, 13])
def test_on_the_leaves_it_is_what_was_learned(layers: int, history_length: int, encoder: str) -> None:
    """Whatever the settings say of sizes: those of the arrays count. Longer histories are cut."""
    tree = random_tree(11, branching=2, seed=1, num_leaves=13)
    model = next_item_model(11, history_length=history_length, layers=layers, encoder=encoder)
    arrays = weighted(tower_arrays(model, tree, inner=inner_vectors(tree)), 0.7)
    histories = random_histories(7, length=history_length + 2, num_items=11, generator=np.random.default_rng(0))
    config = small_config(estimator={"width": 8, "layers": 4})
    scores = build_torch_scorer(named(arrays), tree, config=config).prepare(Requests(Histories.of_rows(histories)))
    leaves = tree.leaf_of_item.astype(np.int64)
    found = np.stack([scores.scores(row, tree.height, leaves) for row in range(7)])
    np.testing.assert_allclose(found, 0.7 * model.scores(histories), rtol=1e-5, atol=1e-5)
    assert np.ptp(found, axis=0).max() > 0.1, "histories differ"


def test_a_node_scores_the_inner_product_of_its_vector_with_the_encoded_history() -> None:
    tree, model = random_tree(11, branching=3, seed=1, num_leaves=17), next_item_model(11)
    arrays = weighted(tower_arrays(model, tree, inner=inner_vectors(tree)), -1.5)
    histories = np.array([[-1, -1, 4, 4, 9], [-1] * 5], dtype=np.int32)
    scores = build_torch_scorer(named(arrays), tree, config=CONFIG).prepare(Requests(Histories.of_rows(histories)))
    expected = model.expectations(histories)
    for level in range(tree.height + 1):
        nodes = np.arange(tree.level_sizes[level])[::-1].copy()
        vectors = arrays["node_table"][nodes + tree.level_offsets[level]]
        for request in (1, 0):
            found = scores.scores(request, level, nodes)
            np.testing.assert_allclose(found, -1.5 * vectors @ expected[request], rtol=1e-5, atol=1e-5)


def test_rows_are_placed_by_the_tree_and_vacant_leaves_are_zero() -> None:
    """Leaves 0 to 4 carry the items 3, 1, none, 0, 2 below 1 + 2 + 4 inner nodes."""
    tree, model = ItemTree(2, np.array([3, 1, -1, 0, 2], dtype=np.int32)), next_item_model(4)
    inner, items = inner_vectors(tree), model.item_vectors()
    table = tower_arrays(model, tree, inner=inner)["node_table"]
    np.testing.assert_array_equal(table, np.concatenate([inner, items[[3, 1]], np.zeros((1, 6)), items[[0, 2]]]))


def test_vectors_or_items_of_another_tree_are_refused() -> None:
    tree = random_tree(11, branching=2, seed=1)
    with pytest.raises(InputError, match=r"Expected vectors \(15, 6\) of the inner nodes .* got \(14, 6\) and 11"):
        tower_arrays(next_item_model(11), tree, inner=inner_vectors(tree)[1:])
    with pytest.raises(InputError, match=r"and 11 items for this tree, got .* and 12"):
        tower_arrays(next_item_model(12), tree, inner=inner_vectors(tree))


def test_arrays_that_do_not_fit_are_refused() -> None:
    tree = random_tree(11, branching=2, seed=1)
    model = next_item_model(11, encoder="self-attention")
    arrays = named(tower_arrays(model, tree, inner=inner_vectors(tree)))
    first = "tower/encoder.layers.0.recency"
    for heads, message in ((4, "heads that divides the tower's width of 6, got 4"), (0, r"got \(0, 5\)")):
        spoilt = {**arrays, first: np.zeros((heads, 5), dtype=np.float32)}
        with pytest.raises(ArtefactError, match=message):
            build_torch_scorer(spoilt, tree, config=CONFIG)
    with pytest.raises(ArtefactError, match="tower/node_table and 0 more"):
        build_torch_scorer(arrays, random_tree(12, branching=2, seed=1), config=CONFIG)
    without = {name: array for name, array in arrays.items() if name != first}
    with pytest.raises(ArtefactError, match="got none of that name"):
        build_torch_scorer(without, tree, config=CONFIG)


def test_a_score_of_attention_and_tower_is_their_sum_and_loads_again() -> None:
    tree = random_tree(12, branching=2, seed=1, num_leaves=14)
    makers = {"attention": make_attention, TOWER: make_tower}
    score = build_score(CONFIG, tree, seed=5, parts=makers)
    requests, leaves = Requests(Histories.of_lists([[], [3], [0, 1, 2]])), np.arange(tree.num_leaves)
    alone = [TorchScorer(Score(tree, {name: part})) for name, part in score.parts.items()]
    both = build_torch_scorer(score.arrays(), tree, config=CONFIG)
    for request in range(3):
        parts = [scorer.prepare(requests).scores(request, tree.height, leaves) for scorer in alone]
        np.testing.assert_allclose(both.prepare(requests).scores(request, tree.height, leaves), sum(parts), atol=1e-6)
    assert_same_bytes(build_score(CONFIG, tree, seed=5, parts=makers).arrays(), score.arrays())


def test_attention_on_the_last_levels_leaves_the_others_to_the_tower() -> None:
    tree = random_tree(12, branching=2, seed=1)
    config = small_config(estimator=SIZES, model={"attention_levels": 2})
    score = build_score(config, tree, seed=5, parts={"attention": make_attention, TOWER: make_tower})
    tower = Score(tree, {TOWER: score.parts[TOWER]})
    requests = Requests(Histories.of_lists([[3, 4]]))
    scorers = [TorchScorer(each).prepare(requests) for each in (score, tower)]
    for level in range(tree.height + 1):
        found, of_tower = (scorer.scores(0, level, np.arange(tree.level_sizes[level])) for scorer in scorers)
        assert (found == of_tower).all() == (level < tree.height - 1)


@pytest.mark.parametrize("attention_levels", [4, 99])
def test_attention_may_have_more_levels_than_the_tree(attention_levels: int) -> None:
    tree = random_tree(8, branching=2, seed=1)
    config = small_config(model={"attention_levels": attention_levels})
    assert build_score(config, tree, seed=5).parts["attention"].levels == range(4)


def ring_learner(*, dropout: float) -> TorchLearner:
    """Attention and tower, which learn that each of eight items is followed by the next."""
    config = small_config(
        estimator=SIZES | {"dropout": dropout}, training=training_settings(clip_norm=1.0).model_dump()
    )
    score = build_score(config, ring_tree(), seed=1, parts={"attention": make_attention, TOWER: make_tower})
    learner = build_learner(score, config=config)
    assert isinstance(learner, TorchLearner)
    return learner


def test_it_learns_together_with_attention() -> None:
    """Every number of the encoder and the rows of history and nodes move; weight and size are not learned."""
    learner, instances = ring_learner(dropout=0.0), ring_instances()
    everything = instances.batch(np.arange(len(instances)))
    before = {name: array.copy() for name, array in learner.model_arrays().items()}
    gradients = learner.gradients(everything, step=0)
    assert all(gradient.any() for gradient in gradients.dense.values())
    assert "tower/weight" not in gradients.dense
    losses = [take_step(learner, everything, step=step, learning_rate=0.02) for step in range(30)]
    assert losses[-1] < 0.6 * losses[0]
    after = learner.model_arrays()
    unchanged = {name for name, array in after.items() if (array == before[name]).all()}
    assert unchanged == {"tower/weight", "tower/encoder.length"}


def test_a_step_touches_the_rows_of_its_history_and_of_its_nodes() -> None:
    learner, instances = ring_learner(dropout=0.0), ring_instances()
    batch = instances.batch(np.array([0]))
    tree, touched = learner.score.tree, learner.gradients(batch, step=0).rows["tower/node_table"].rows.tolist()
    history_item, target = batch.histories.row(0).tolist(), int(batch.targets[0, 0])
    paths = [int(tree.item_ancestors(target, level) + tree.level_offsets[level]) for level in (1, 2, 3)]
    leaf = int(tree.leaf_of_item[history_item[0]] + tree.level_offsets[3])
    assert {*paths, leaf} <= set(touched)
    assert 0 not in touched, "padding reads row 0 and must leave it alone"


def test_dropout_is_drawn_from_the_step_alone() -> None:
    batch = ring_instances().batch(np.arange(8))
    learner = ring_learner(dropout=0.5)
    loss = learner.gradients(batch, step=1).loss
    assert loss == ring_learner(dropout=0.5).gradients(batch, step=1).loss
    assert loss != ring_learner(dropout=0.0).gradients(batch, step=1).loss
    requests = Requests(Histories.of_lists([[1, 2]]))
    first, again = (Engine(TorchScorer(learner.score), ring_tree()).scan(requests, k=8).scores for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_requests_that_are_prepared_together_score_as_each_alone() -> None:
    tree = random_tree(40, branching=2, seed=1)
    score = build_score(small_config(estimator={"width": 32}), tree, seed=5, parts={TOWER: make_tower})
    histories = random_histories(30, length=5, num_items=40, generator=np.random.default_rng(0))
    nodes = torch.arange(tree.num_nodes)[None, None]
    with torch.no_grad():
        together = score.prepare(Requests(Histories.of_rows(histories)))([0], nodes.expand(1, 30, -1))[0]
        for row in range(30):
            alone = score.prepare(Requests(Histories.of_rows(histories[row : row + 1])))([0], nodes)[0, 0]
            np.testing.assert_allclose(alone.numpy(), together[row].numpy(), rtol=1e-4, atol=1e-5)
