"""Counted memory in search: the kernels, the NumPy writing and the exact scan agree, and memory alone is a max-heap."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree import native
from beamtree.config import Config
from beamtree.data.requests import Histories, Requests
from beamtree.data.split import Spans
from beamtree.model.memory import Memory, MemoryWeights
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.tree.item_tree import ItemTree
from tests.retrieval.numpy_scorer import NumpyScorer
from tests.small import model_settings, random_tree, sequences_of, stirred_model, weights_of

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")


def random_memory(num_items: int, *, seed: int, weights: MemoryWeights, followers: int = 300) -> Memory:
    """What is counted in a random log of thirty users."""
    generator = np.random.default_rng(seed)
    lists = [generator.integers(0, num_items, size=generator.integers(0, 40)).tolist() for _ in range(30)]
    sequences = sequences_of(lists)
    spans = Spans(np.arange(30, dtype=np.int32), sequences.offsets[:-1], sequences.offsets[1:])
    counted = Memory.count(sequences, spans, num_items=num_items, followers=followers)
    return counted.weighed(weights)


def named(memory: Memory) -> dict[str, Any]:
    return {f"memory/{name}": array for name, array in memory.arrays().items()}


def random_requests(tree: ItemTree, *, seed: int, filters: str) -> Requests:
    generator = np.random.default_rng(seed)
    histories = [generator.integers(0, tree.num_items, size=size).tolist() for size in (0, 1, 7, 60)]
    excluded = [generator.integers(-1, tree.num_items, size=size).tolist() for size in (5, 0, 20, 30)]
    return Requests(
        Histories.of_lists(histories),
        excluded=sequences_of(excluded) if filters in ("excluded", "both") else None,
        allowed=generator.random(tree.num_items) < 0.4 if filters in ("allowed", "both") else None,
    )


any_search = given(
    seed=st.integers(0, 10**6),
    num_items=st.integers(2, 300),
    vacant=st.integers(0, 40),
    branching=st.integers(2, 5),
    k=st.integers(1, 12),
    wider=st.integers(0, 40),
    filters=st.sampled_from(["none", "allowed", "excluded", "both"]),
    repeats=st.sampled_from([0.0, 0.7, -0.9]),
    popularity=st.sampled_from([0.0, 0.3]),
)


@settings(max_examples=80, deadline=None)
@any_search
def test_memory_alone_leads_a_beam_of_k_to_what_the_exact_scan_finds(
    seed: int,
    num_items: int,
    vacant: int,
    branching: int,
    k: int,
    wider: int,
    filters: str,
    repeats: float,
    popularity: float,
) -> None:
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    memory = random_memory(num_items, seed=seed, weights=MemoryWeights(1.0, abs(repeats), popularity, company=0.4))
    requests = random_requests(tree, seed=seed, filters=filters)
    engine = Engine(build_scorer(named(memory), tree, config=Config()), tree)
    found, exact = engine.search(requests, k=k, beam_width=k + wider), engine.scan(requests, k=k)
    np.testing.assert_array_equal(found.items, exact.items)
    np.testing.assert_array_equal(found.scores, exact.scores)


@settings(max_examples=40, deadline=None)
@any_search
def test_kernels_and_numpy_give_every_node_the_same_evidence(
    seed: int,
    num_items: int,
    vacant: int,
    branching: int,
    filters: str,
    repeats: float,
    popularity: float,
    **_: int,
) -> None:
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    memory = random_memory(
        num_items, seed=seed, weights=MemoryWeights(1.3, repeats, popularity, company=0.6), followers=9
    )
    requests = random_requests(tree, seed=seed, filters=filters)
    kernels = build_scorer(named(memory), tree, config=Config()).prepare(requests)
    judge = NumpyScorer(named(memory), tree, config=Config()).prepare(requests)
    generator = np.random.default_rng(seed)
    for request in range(len(requests)):
        for level in range(tree.height + 1):
            nodes = generator.permutation(tree.level_sizes[level])[:50]
            expected = judge.scores(request, level, nodes)
            np.testing.assert_allclose(kernels.scores(request, level, nodes), expected, atol=1e-4, rtol=1e-4)


def test_what_speaks_against_itself_falls_behind_what_nobody_points_to() -> None:
    tree = random_tree(60, branching=2, seed=3)
    memory = random_memory(60, seed=2, weights=MemoryWeights(1.0, -50.0, 0.0))
    requests = Requests(Histories.of_lists([[7, 8, 9, 8]]))
    found = Engine(build_scorer(named(memory), tree, config=Config()), tree).scan(requests, k=60)
    assert set(found.items[0, -3:].tolist()) == {7, 8, 9}
    assert found.scores[0, -1] < found.scores[0, -4] == 0.0


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("history_table", ["shared", "separate"])
def test_the_sum_of_attention_and_memory_is_the_same_in_the_kernels_and_in_numpy(
    gated: bool, history_table: str
) -> None:
    chosen = model_settings(history_table=history_table)
    tree = random_tree(80, branching=2, seed=3, num_leaves=90)
    memory = random_memory(80, seed=1, weights=MemoryWeights(0.8, 0.4, 0.1, company=0.5))
    arrays = memory.arrays()
    if gated:
        arrays["gates"] = np.linspace(0.5, 1.0, tree.height + 1)
    weights = {f"memory/{name}": array for name, array in arrays.items()}
    weights |= {f"attention/{name}": array for name, array in weights_of(stirred_model(chosen, tree, seed=0)).items()}
    engines = [Engine(make(weights, tree, config=Config(model=chosen)), tree) for make in (build_scorer, NumpyScorer)]
    requests = random_requests(tree, seed=5, filters="both")
    in_kernels, in_numpy = (engine.search(requests, k=6, beam_width=12) for engine in engines)
    np.testing.assert_array_equal(in_kernels.items, in_numpy.items)
    np.testing.assert_allclose(in_kernels.scores, in_numpy.scores, atol=1e-4)
    in_kernels, in_numpy = (engine.scan(requests, k=6) for engine in engines)
    np.testing.assert_array_equal(in_kernels.items, in_numpy.items)


def test_seen_items_do_not_lead_the_beam_astray() -> None:
    """The strongest evidence of all points to excluded leaves: the node above them must not look strong for it."""
    tree = ItemTree(2, np.arange(8, dtype=np.int32))
    sequences = sequences_of([[0, 1]] * 9 + [[0, 6]])
    spans = Spans(np.arange(10, dtype=np.int32), sequences.offsets[:-1], sequences.offsets[1:])
    memory = Memory.count(sequences, spans, num_items=8).weighed(MemoryWeights(1.0, 0.0, 0.0))
    engine = Engine(build_scorer(named(memory), tree, config=Config()), tree)
    asked = Requests(Histories.of_lists([[0]]), excluded=sequences_of([[0, 1]]))
    found = engine.search(asked, k=1, beam_width=1)
    assert found.items.tolist() == [[6]]
    assert found.scores[0, 0] == pytest.approx(np.log(2), rel=1e-3)


def test_threads_that_search_different_trees_at_once_do_not_disturb_each_other() -> None:
    """What a thread of the kernels keeps between requests is left clean for the next tree, larger or smaller."""
    engines, asked = [], []
    for num_items in (40, 300):
        tree = random_tree(num_items, branching=2, seed=num_items)
        memory = random_memory(num_items, seed=1, weights=MemoryWeights(1.0, 0.5, 0.05))
        engines.append(Engine(build_scorer(named(memory), tree, config=Config()), tree))
        asked.append(random_requests(tree, seed=2, filters="both"))
    expected = [engine.scan(requests, k=8) for engine, requests in zip(engines, asked, strict=True)]

    def search(turn: int) -> bool:
        which = turn % 2
        found = engines[which].search(asked[which], k=8, beam_width=10)
        return np.array_equal(found.items, expected[which].items) and np.array_equal(
            found.scores, expected[which].scores
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(search, range(200)))
