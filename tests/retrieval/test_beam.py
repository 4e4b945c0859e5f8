from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.retrieval.beam import Ranking, ScoreNodes, beam_search, exact_scan, first_searched_level, widened
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree
from tests.small import Ragged, ragged, random_tree

ETA = (0.21, 0.0, 0.12, 0.18, 0.19, 0.0, 0.16, 0.14)
"""The example in the paper's proof that one-hot labels lead a beam astray."""


def ordered_tree(num_leaves: int, *, branching: int = 2) -> ItemTree:
    return ItemTree(branching, np.arange(num_leaves, dtype=np.int32))


def scores_from_leaves(tree: ItemTree, leaf_values: Sequence[float], *, combine: np.ufunc) -> ScoreNodes:
    """Every node scores what `combine` makes of the values of the leaves below it."""
    values = np.asarray(leaf_values)

    def score(level: int, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        first, end = tree.leaf_ranges(nodes, level)
        below = [combine.reduce(values[begin:stop]) for begin, stop in zip(first, end, strict=True)]
        return np.array(below, dtype=np.float32)

    return score


def search(
    tree: ItemTree, score: ScoreNodes, *, beam_width: int, k: int, eligibility: Eligibility | None = None
) -> Ranking:
    return beam_search(tree, score, eligibility=eligibility or Eligibility(tree), request=0, beam_width=beam_width, k=k)


def test_the_example_of_the_paper() -> None:
    """On level 2 the pairs sum up to .21 .30 .19 .30, so a beam of 3 drops the third, and with it the leaf 5.

    Their maxima are .21 .18 .19 .16: the fourth is dropped, rightly. Leaves are counted from 1, as in the paper.
    """
    tree = ordered_tree(8)
    by_sums = search(tree, scores_from_leaves(tree, ETA, combine=np.add), beam_width=3, k=3)
    by_maxima = search(tree, scores_from_leaves(tree, ETA, combine=np.maximum), beam_width=3, k=3)
    assert set((by_sums.leaves + 1).tolist()) == {1, 4, 7}
    assert set((by_maxima.leaves + 1).tolist()) == {1, 4, 5}
    assert (by_maxima.leaves + 1).tolist() == [1, 5, 4], "best first"
    assert by_maxima.scores.tolist() == pytest.approx([0.21, 0.19, 0.18])


def test_the_search_starts_at_the_first_level_that_a_beam_cannot_keep_whole() -> None:
    tree = ordered_tree(11)  # levels of 1, 2, 4, 8 and 11 nodes
    assert [first_searched_level(tree, beam_width=width) for width in (1, 2, 3, 4, 7, 8, 10, 11, 99)] == [
        1, 2, 2, 3, 3, 4, 4, 4, 4,
    ]  # fmt: skip
    asked: list[tuple[int, list[int]]] = []

    def score(level: int, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        asked.append((level, nodes.tolist()))
        return -nodes.astype(np.float32)

    assert search(tree, score, beam_width=3, k=2).leaves.tolist() == [0, 1]
    # Level 2 whole; the children of its nodes 0 1 2; the leaves below the nodes 0 1 2 of level 3: 0-1, 2, 3-4.
    assert asked == [(2, [0, 1, 2, 3]), (3, [0, 1, 2, 3, 4, 5]), (4, [0, 1, 2, 3, 4])]


def test_equal_scores_are_ranked_by_lower_index() -> None:
    tree = ordered_tree(16)
    flat = search(tree, lambda _, nodes: np.zeros(len(nodes), dtype=np.float32), beam_width=4, k=4)
    assert flat.leaves.tolist() == [0, 1, 2, 3]
    values = [0, 1, 1, 0, 1, 0, 0, 1]
    score = scores_from_leaves(ordered_tree(8), values, combine=np.maximum)
    assert search(ordered_tree(8), score, beam_width=3, k=3).leaves.tolist() == [1, 2, 4]


def test_nobody_hears_of_vacant_leaves_and_nodes() -> None:
    """Leaves 2 to 5 are vacant, and so is the node 1 of level 2; a tempting score there changes nothing."""
    tree = ItemTree(2, np.array([1, -1, -1, -1, -1, 0, 2, 3], dtype=np.int32))
    asked: dict[int, list[int]] = {}

    def score(level: int, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        asked[level] = nodes.tolist()
        return np.zeros(len(nodes), dtype=np.float32)

    assert search(tree, score, beam_width=3, k=3).leaves.tolist() == [0, 5, 6]
    assert asked == {2: [0, 2, 3], 3: [0, 5, 6, 7]}


def test_few_eligible_leaves_are_scored_outright() -> None:
    """Leaf 6 lies where inner scores never lead, but with at most a beam of eligible leaves they are not asked."""
    tree = ordered_tree(8)
    allowed = np.isin(np.arange(8), [1, 6, 7])
    asked: list[int] = []

    def score(level: int, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        asked.append(level)
        return nodes.astype(np.float32) if level == 3 else -nodes.astype(np.float32)

    eligibility = Eligibility(tree, allowed_items=allowed)
    assert search(tree, score, beam_width=3, k=2, eligibility=eligibility).leaves.tolist() == [7, 6]
    assert asked == [3]
    asked.clear()
    assert search(tree, score, beam_width=2, k=2, eligibility=eligibility).leaves.tolist() == [7, 6]
    assert asked == [2, 3]


def test_nothing_eligible_gives_nothing() -> None:
    tree = ordered_tree(8)
    eligibility = Eligibility(tree, allowed_items=np.zeros(8, dtype=np.bool_))
    score = scores_from_leaves(tree, ETA, combine=np.add)
    for ranking in (
        search(tree, score, beam_width=3, k=3, eligibility=eligibility),
        exact_scan(tree, score, eligibility=eligibility, request=0, k=3),
    ):
        assert (ranking.leaves.size, ranking.scores.size) == (0, 0)


@settings(max_examples=40, deadline=None)
@given(num_items=st.integers(2, 80), branching=st.integers(2, 5), vacant=st.integers(0, 20), seed=st.integers(0, 10**6))
def test_scores_ranked_like_subtree_maxima_give_the_true_top_for_every_beam(
    num_items: int, branching: int, vacant: int, seed: int
) -> None:
    """On each level the maxima may be transformed by any rising function of their own."""
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    generator = np.random.default_rng(seed)
    values = np.where(tree.item_at_leaf >= 0, generator.permutation(tree.num_leaves), -1.0)
    scales, shifts = generator.uniform(0.1, 3.0, tree.height + 1), generator.normal(size=tree.height + 1)
    maxima = scores_from_leaves(tree, values.tolist(), combine=np.maximum)
    ranked = np.argsort(-values)[:num_items]
    for beam_width in {1, 2, 3, 7, num_items}:
        k = min(beam_width, num_items)
        found = search(
            tree,
            lambda level, nodes: (maxima(level, nodes) * scales[level] + shifts[level]).astype(np.float32),
            beam_width=beam_width,
            k=k,
        )
        assert found.leaves.tolist() == ranked[:k].tolist()


def random_scores(tree: ItemTree, *, seed: int) -> ScoreNodes:
    """Noise without any relation between levels, with many ties."""
    generator = np.random.default_rng(seed)
    tables = [generator.integers(0, 6, size=size).astype(np.float32) for size in tree.level_sizes]
    return lambda level, nodes: tables[level][nodes]


def random_filters(num_items: int, *, share: float, seed: int) -> tuple[npt.NDArray[np.bool_], Ragged]:
    generator = np.random.default_rng(seed)
    excluded = generator.integers(-1, num_items, size=generator.integers(0, 8)).tolist()
    return generator.random(num_items) < share, ragged([excluded])


@settings(max_examples=60, deadline=None)
@given(
    num_items=st.integers(1, 80),
    branching=st.integers(2, 5),
    vacant=st.integers(0, 20),
    share=st.floats(0, 1),
    beam_width=st.integers(1, 20),
    k=st.integers(1, 20),
    seed=st.integers(0, 10**6),
)
def test_whatever_the_filters_every_result_is_eligible_and_none_is_missing(
    num_items: int, branching: int, vacant: int, share: float, beam_width: int, k: int, seed: int
) -> None:
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    allowed, excluded = random_filters(num_items, share=share, seed=seed)
    eligibility = Eligibility(tree, allowed_items=allowed, excluded_items=excluded)
    score = random_scores(tree, seed=seed)
    found = search(tree, score, beam_width=max(beam_width, k), k=k, eligibility=eligibility)
    eligible = set(eligibility.leaves(0).tolist())
    leaves = found.leaves.tolist()
    assert set(leaves) <= eligible
    assert len(set(leaves)) == len(leaves) == min(k, len(eligible))
    assert list(zip((-found.scores).tolist(), leaves, strict=True)) == sorted(
        zip((-found.scores).tolist(), leaves, strict=True)
    )
    np.testing.assert_array_equal(found.scores, score(tree.height, found.leaves))
    widest = search(tree, score, beam_width=tree.num_leaves, k=k, eligibility=eligibility)
    exact = exact_scan(tree, score, eligibility=eligibility, request=0, k=k)
    assert widest.leaves.tolist() == exact.leaves.tolist()
    expected = sorted(eligible, key=lambda leaf: (-float(score(tree.height, np.array([leaf]))[0]), leaf))[:k]
    assert exact.leaves.tolist() == expected


def test_a_beam_grows_by_what_is_excluded_to_at_most_twice_its_width() -> None:
    assert widened(10, [0, 3, 10, 25]).tolist() == [10, 13, 20, 20]
