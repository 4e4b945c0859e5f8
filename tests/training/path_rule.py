"""What draws down a tree are corrected by: a node's probability is the product of local softmaxes on its path."""

import numpy as np
import numpy.typing as npt
import pytest

from beamtree.model.attention import Attention
from beamtree.training.negatives import NegativeSampler
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


def assert_product_rule(
    sampler: NegativeSampler,
    *,
    count: int,
    num_items: int,
    vacant: int,
    branching: int,
    attention_levels: int | None,
    seed: int,
    start: str = "level",
    correction: str = "negatives",
) -> None:
    """Candidates of a sampler of `count` paths, over a random tree, have the corrections of the product rule."""
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    model = stirred_model(model_settings(attention_levels=attention_levels), tree, seed=seed)
    generator = np.random.default_rng(seed)
    histories = random_histories(4, length=5, num_items=num_items, generator=generator)
    batch = batch_from(histories, generator.integers(0, num_items, size=4).astype(np.int32))
    candidates = sampler.draws(score_of(model)).draw(batch, generator=generator)

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
