import numpy as np
import pytest

pytest.importorskip("beamtree.native._kernels")

from beamtree import native
from beamtree.native.relearn import add_candidate_scores
from tests.native.kernel_steps import score_rows
from tests.native.plain_network import Shape
from tests.native.small_models import random_attention, random_histories, random_tree

SHAPE = Shape()


@pytest.mark.parametrize(("upper", "lower"), [(0, 3), (3, 6), (5, 7)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_log_softmaxes_over_the_nodes_below_the_group(upper: int, lower: int, dtype: type) -> None:
    generator = np.random.default_rng(upper)
    tree = random_tree(generator, items=90, vacant=10)
    assert tree.height == 7
    attention, _ = random_attention(generator, tree, SHAPE)
    histories = random_histories(generator, tree, SHAPE, count=60)
    targets = generator.integers(0, 20, 60).astype(np.int32)
    groups = generator.integers(0, tree.level_sizes[upper], 90)
    groups[3] = -1
    columns = 2 ** (lower - upper)
    sums = np.full((90, columns), 0.5, dtype=dtype)
    expected = sums.copy()
    for history, target in zip(histories, targets, strict=True):
        group = int(groups[target])
        if group < 0:
            continue
        leaf_first, leaf_end = tree.leaf_ranges(group, upper)
        candidates = np.unique(tree.ancestors(np.arange(int(leaf_first), int(leaf_end)), lower))
        offset = tree.level_offsets[lower]
        ancestors = tree.item_ancestors(history, lower)
        history_rows = np.where(ancestors >= 0, ancestors + offset, -1)
        scores = score_rows(attention, candidates + offset, history_rows=history_rows).astype(np.float64)
        scores -= scores.max()
        expected[target, : len(candidates)] += scores - np.log(np.exp(scores).sum())
    before = native.threads()
    try:
        for threads in (1, 3):
            native.set_threads(threads)
            found = sums.copy()
            add_candidate_scores(
                attention,
                found,
                tree=tree,
                histories=histories,
                targets=targets,
                group_of_item=groups,
                group_level=upper,
                candidate_level=lower,
            )
            np.testing.assert_allclose(found, expected, atol=1e-4)
    finally:
        native.set_threads(before)


def test_too_few_columns_are_refused() -> None:
    generator = np.random.default_rng(0)
    tree = random_tree(generator, items=64)
    attention, _ = random_attention(generator, tree, SHAPE)
    with pytest.raises(ValueError, match="too few columns"):
        add_candidate_scores(
            attention,
            np.zeros((64, 7), dtype=np.float32),
            tree=tree,
            histories=random_histories(generator, tree, SHAPE, count=2),
            targets=np.zeros(2, dtype=np.int32),
            group_of_item=np.zeros(64, dtype=np.int64),
            group_level=0,
            candidate_level=3,
        )
