"""Where the tables start: from the items' vectors, with a little of the random start left."""

import numpy as np
import pytest
import torch

from beamtree.model.attention import TABLE_SCALE
from beamtree.model.embedding_init import NOISE
from beamtree.types import NOTHING
from tests.small import fresh_attention, model_settings, random_tree, score_of


@pytest.mark.parametrize("history_table", ["shared", "separate"])
@pytest.mark.parametrize(("items", "leaves", "branching"), [(1, 1, 2), (7, 7, 2), (11, 16, 3)])
def test_a_node_starts_amid_the_known_items_below_it(
    items: int, leaves: int, branching: int, history_table: str
) -> None:
    settings = model_settings(history_table=history_table)
    tree = random_tree(items, branching=branching, seed=1, num_leaves=leaves)
    vectors = np.random.default_rng(2).normal(size=(items, settings.embedding_dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[items // 2 + 1 :] = 0.0
    random, model = (fresh_attention(settings, tree, seed=3) for _ in range(2))
    score_of(model).start_from_items(vectors)

    length = TABLE_SCALE * settings.embedding_dim**0.5
    started = (model.node_table - NOISE * random.node_table).detach().numpy() / length
    for level in range(tree.height + 1):
        for node in range(tree.level_sizes[level]):
            first, end = tree.leaf_ranges(node, level)
            below = tree.item_at_leaf[first:end]
            below = below[below != NOTHING]
            below = below[vectors[below].any(axis=1)]
            expected = vectors[below].mean(axis=0) if below.size else np.zeros(settings.embedding_dim)
            np.testing.assert_allclose(started[tree.level_offsets[level] + node], expected, atol=1e-5)
    if model.item_table is not None and random.item_table is not None:
        own = (model.item_table - NOISE * random.item_table).detach().numpy() / length
        np.testing.assert_allclose(own, vectors, atol=1e-5)


def test_only_the_tables_are_moved() -> None:
    settings, tree = model_settings(history_table="separate"), random_tree(5, branching=2, seed=0)
    random, model = (fresh_attention(settings, tree, seed=1) for _ in range(2))
    score_of(model).start_from_items(np.eye(5, settings.embedding_dim, dtype=np.float32))
    for name, before in score_of(random).small_weights().items():
        assert torch.equal(before, score_of(model).small_weights()[name]), name
