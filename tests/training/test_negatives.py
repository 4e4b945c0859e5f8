import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.training.negatives import Candidates, UniformNegatives
from beamtree.tree.item_tree import ItemTree
from tests.small import random_tree
from tests.training.runs import batch_of


@pytest.fixture
def tree() -> ItemTree:
    """Leaves 0 to 5 carry the items 3, 1, none, none, 0, 2; B = 2, H = 3.

    Level 1: {0 1 2} {3 4 5}; level 2: {0 1} {2} {3 4} {5}, of which the second holds no item.
    Rows of the node table: 0 | 1 2 | 3 4 5 6 | 7 8 9 10 11 12.
    """
    return ItemTree(2, np.array([3, 1, -1, -1, 0, 2], dtype=np.int32))


def draw(tree: ItemTree, *, counts: list[int], targets: list[int], seed: int = 0) -> Candidates:
    sampler = UniformNegatives(tree, counts=np.array(counts))
    return sampler.draw(batch_of(targets), generator=np.random.default_rng(seed))


def test_levels_that_fit_are_taken_whole_with_the_positive_first(tree: ItemTree) -> None:
    candidates = draw(tree, counts=[3, 3, 3], targets=[0, 3])
    level_1, level_2, leaves = candidates.node_rows.tolist()
    assert [row[0] for row in level_1] == [2, 1], "the ancestors of the items 0 and 3"
    assert [sorted(row) for row in level_1] == [[-1, -1, 1, 2]] * 2
    assert [row[0] for row in level_2] == [5, 3]
    assert [sorted(row) for row in level_2] == [[-1, 3, 5, 6]] * 2, "row 4 has no item below it"
    assert [row[0] for row in leaves] == [11, 7]
    assert [sorted(row) for row in leaves] == [[7, 8, 11, 12]] * 2, "rows 9 and 10 are vacant leaves"
    assert not candidates.log_correction.any()


def test_larger_levels_are_drawn_and_hits_of_the_positive_masked(tree: ItemTree) -> None:
    """Two draws among four leaves with items: M_eff is 0, 1 or 2, and q / (1 - q_pos) = 1 / 3 each."""
    candidates = draw(tree, counts=[1, 2, 2], targets=[1] * 400)
    leaves, correction = candidates.node_rows[2], candidates.log_correction[2]
    assert (leaves[:, 0] == 8).all()
    assert not correction[:, 0].any()
    seen: dict[int, set[float]] = {0: set(), 1: set(), 2: set()}
    for drawn, corrections in zip(leaves[:, 1:].tolist(), correction[:, 1:].tolist(), strict=True):
        effective = sum(row != -1 for row in drawn)
        seen[effective] |= {value for row, value in zip(drawn, corrections, strict=True) if row != -1}
    assert seen[0] == set()
    assert list(seen[1]) == pytest.approx([np.log(1 / 3)])
    assert list(seen[2]) == pytest.approx([np.log(2 / 3)])
    assert set(leaves[:, 1:].ravel().tolist()) == {-1, 7, 11, 12}, "all others and nothing vacant"
    # Level 2 has three nodes with items and two negatives: whole, while level 1 has two and one: whole as well.
    assert sorted(candidates.node_rows[1][0].tolist()) == [3, 5, 6]
    assert sorted(candidates.node_rows[0][0].tolist()) == [-1, 1, 2]


def test_draws_are_uniform_and_with_replacement() -> None:
    tree = random_tree(10, branching=2, seed=0)
    target = int(tree.item_at_leaf[4])
    leaves = draw(tree, counts=[1, 1, 1, 3], targets=[target] * 20_000).node_rows[3][:, 1:] - tree.level_offsets[4]
    shares = np.bincount(leaves[leaves >= 0], minlength=10) / leaves.size
    assert shares[4] == 0
    np.testing.assert_allclose(np.delete(shares, 4), 0.1, atol=0.006)  # five standard deviations
    repeated = (leaves[:, 0] == leaves[:, 1]) & (leaves[:, 0] >= 0)
    assert repeated.mean() == pytest.approx(0.09, abs=0.01)


def test_the_generator_decides_the_draw() -> None:
    tree = random_tree(40, branching=3, seed=0)
    first, again, other = (draw(tree, counts=[4] * 4, targets=[1, 2, 3], seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.node_rows, again.node_rows)
    assert (first.node_rows != other.node_rows).any()


@settings(max_examples=40, deadline=None)
@given(
    num_items=st.integers(2, 60),
    vacant=st.integers(0, 20),
    branching=st.integers(2, 6),
    negatives=st.integers(1, 12),
    slope=st.sampled_from([0, 1, 3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_candidates_of_any_tree(
    num_items: int, vacant: int, branching: int, negatives: int, slope: int, seed: int
) -> None:
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    counts = negatives + slope * np.arange(tree.height)
    targets = np.random.default_rng(seed).integers(0, num_items, size=7)
    candidates = draw(tree, counts=counts.tolist(), targets=targets.tolist(), seed=seed)
    assert candidates.node_rows.shape == candidates.log_correction.shape == (tree.height, 7, counts.max() + 1)
    assert np.isfinite(candidates.log_correction).all()
    for level in range(1, tree.height + 1):
        rows: npt.NDArray[np.int64] = candidates.node_rows[level - 1]
        occupied = set((np.flatnonzero(tree.occupied(level)) + tree.level_offsets[level]).tolist())
        positives = tree.item_ancestors(targets, level) + tree.level_offsets[level]
        assert rows[:, 0].tolist() == positives.tolist()
        for row, positive in zip(rows.tolist(), positives.tolist(), strict=True):
            others = [node for node in row[1:] if node != -1]
            assert set(others) <= occupied - {positive}
            if len(occupied) <= counts[level - 1] + 1:
                assert sorted(others) == sorted(occupied - {positive})
            else:
                assert len(others) <= counts[level - 1]
