import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree import native
from beamtree.config import Config, ModelSettings
from beamtree.data.requests import Histories, Requests
from beamtree.errors import InputError
from beamtree.retrieval.beam import beam_search
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree
from tests.retrieval.numpy_scorer import NumpyScorer
from tests.small import (
    Arrays,
    model_settings,
    plain_scores,
    ragged,
    random_histories,
    random_tree,
    sequences_of,
    stirred_model,
    weights_of,
)

NUM_ITEMS = 23
TREE = random_tree(NUM_ITEMS, branching=2, seed=4, num_leaves=29)
SETTINGS = model_settings()


@pytest.fixture(params=["reference", "native"], scope="module", autouse=True)
def search_path(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs on the reference search over the NumPy score, and again on the kernels where there are any."""
    if request.param == "native" and not native.is_available():
        pytest.skip("the kernels were not compiled")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "reference":
            patch.setattr(f"{__name__}.build_scorer", NumpyScorer)
        yield


def engine_over(weights: Arrays, tree: ItemTree, *, settings: ModelSettings) -> Engine:
    """An engine over the arrays of an attention network."""
    named = {f"attention/{name}": array for name, array in weights.items()}
    return Engine(build_scorer(named, tree, config=Config(model=settings)), tree)


def engine_for(settings: ModelSettings = SETTINGS, *, tree: ItemTree = TREE, seed: int = 0) -> tuple[Engine, Arrays]:
    weights = weights_of(stirred_model(settings, tree, seed=seed))
    return engine_over(weights, tree, settings=settings), weights


def asking(histories: Any, *, excluded: list[list[int]] | None = None, allowed: Any = None) -> Requests:
    """Requests of padded histories."""
    lists = None if excluded is None else sequences_of(excluded)
    return Requests(Histories.of_rows(histories), excluded=lists, allowed=allowed)


def some_histories(requests: int = 6, *, seed: int = 0, num_items: int = NUM_ITEMS) -> Any:
    """Random ones; the first is empty, the second full."""
    return random_histories(requests, length=5, num_items=num_items, generator=np.random.default_rng(seed))


@settings(max_examples=30, deadline=None)
@given(
    embedding_dim=st.integers(1, 7),
    windows=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    attention_hidden=st.integers(1, 6),
    layers=st.lists(st.integers(4, 9), min_size=1, max_size=5),
    normalisation=st.sampled_from(["none", "layer", "batch"]),
    history_table=st.sampled_from(["shared", "separate"]),
    num_items=st.integers(1, 40),
    branching=st.integers(2, 5),
    vacant=st.integers(0, 10),
    seed=st.integers(0, 10**6),
)
def test_an_exact_scan_gives_the_scores_of_the_plain_network(
    num_items: int, branching: int, vacant: int, seed: int, **sizes: Any
) -> None:
    chosen = model_settings(**sizes)
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    model = stirred_model(chosen, tree, seed=seed)
    histories = random_histories(
        3, length=chosen.attention_history, num_items=num_items, generator=np.random.default_rng(seed)
    )
    found = engine_over(weights_of(model), tree, settings=chosen).scan(asking(histories), k=num_items)
    assert found.items.dtype == np.int32
    assert found.scores.dtype == np.float32
    for history, items, scores in zip(histories, found.items, found.scores, strict=True):
        reference = plain_scores(model, history)
        expected = reference(tree.height, tree.leaf_of_item.astype(np.int64))
        assert sorted(items.tolist()) == list(range(num_items))
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(scores, expected[items], atol=2e-4 * scale)
        assert (np.diff(scores) <= 0).all()


@pytest.mark.parametrize("normalisation", ["none", "layer", "batch"])
@pytest.mark.parametrize("history_table", ["shared", "separate"])
def test_a_beam_search_finds_what_the_plain_network_leads_to(normalisation: str, history_table: str) -> None:
    """Level by level with the plain network, in three lines: keep the best five, enter their children."""
    chosen = model_settings(normalisation=normalisation, history_table=history_table)
    tree = random_tree(60, branching=2, seed=1)
    model = stirred_model(chosen, tree, seed=2)
    histories = some_histories(num_items=60)
    found = engine_over(weights_of(model), tree, settings=chosen).search(asking(histories), k=5, beam_width=5)
    for history, items in zip(histories, found.items, strict=True):
        score = plain_scores(model, history)
        nodes = np.arange(8)  # level 3 is the first with more than five nodes
        for level in range(3, tree.height):
            best = np.argsort(-score(level, nodes), kind="stable")[:5]
            first, end = tree.child_ranges(np.sort(nodes[best]), level)
            nodes = np.concatenate([np.arange(begin, stop) for begin, stop in zip(first, end, strict=True)])
        best = np.argsort(-score(tree.height, nodes), kind="stable")[:5]
        assert items.tolist() == tree.item_at_leaf[nodes[best]].tolist()


def test_a_beam_as_wide_as_the_leaves_equals_the_scan() -> None:
    engine, _ = engine_for()
    searched, scanned = (
        engine.search(asking(some_histories()), k=7, beam_width=29),
        engine.scan(asking(some_histories()), k=7),
    )
    np.testing.assert_array_equal(searched.items, scanned.items)
    np.testing.assert_allclose(searched.scores, scanned.scores, rtol=1e-5)


def test_a_table_of_half_precision_is_accepted_and_computed_in_single() -> None:
    """The same numbers, stored in half the bytes, give the same scores."""
    for chosen in (SETTINGS, model_settings(history_table="separate")):
        _, weights = engine_for(chosen)
        tables = {name: array.astype(np.float16) for name, array in weights.items() if name.endswith("_table")}
        rounded = {name: array.astype(np.float32) for name, array in tables.items()}
        half = engine_over(weights | tables, TREE, settings=chosen).scan(asking(some_histories()), k=5)
        single = engine_over(weights | rounded, TREE, settings=chosen).scan(asking(some_histories()), k=5)
        np.testing.assert_array_equal(half.items, single.items)
        np.testing.assert_allclose(half.scores, single.scores, rtol=1e-5)


@pytest.mark.parametrize("method", ["search", "scan"])
def test_an_answer_does_not_depend_on_who_else_is_asked_for(method: str) -> None:
    engine, _ = engine_for()
    histories = some_histories(8)
    excluded = [[0, 1], [], [5], [7, 8, 9, 10], [], [2], list(range(20)), [3]]
    options: dict[str, Any] = {"k": 6} | ({"beam_width": 6} if method == "search" else {})
    ask = getattr(engine, method)
    together = ask(asking(histories, excluded=excluded), **options)
    order = [5, 0, 7, 2]
    shuffled = ask(asking(histories[order], excluded=[excluded[i] for i in order]), **options)
    np.testing.assert_array_equal(shuffled.items, together.items[order])
    np.testing.assert_array_equal(shuffled.scores, together.scores[order])
    for request in range(8):
        alone = ask(asking(histories[[request]], excluded=[excluded[request]]), **options)
        np.testing.assert_array_equal(alone.items[0], together.items[request])
        np.testing.assert_array_equal(alone.scores[0], together.scores[request])


@settings(max_examples=25, deadline=None)
@given(share=st.floats(0, 1), k=st.integers(1, 30), beam_width=st.integers(1, 30), seed=st.integers(0, 10**6))
def test_results_are_eligible_complete_and_in_order(share: float, k: int, beam_width: int, seed: int) -> None:
    engine, _ = engine_for()
    generator = np.random.default_rng(seed)
    allowed = generator.random(NUM_ITEMS) < share
    lists = [generator.integers(-1, NUM_ITEMS, size=generator.integers(0, 12)).tolist() for _ in range(3)]
    histories = some_histories(3, seed=seed)
    requests = asking(histories, allowed=allowed, excluded=lists)
    for found in (engine.search(requests, k=k, beam_width=beam_width), engine.scan(requests, k=k)):
        assert found.items.shape == found.scores.shape == (3, k)
        for items, scores, excluded in zip(found.items, found.scores, lists, strict=True):
            eligible = set(np.flatnonzero(allowed).tolist()) - set(excluded)
            returned = min(k, len(eligible))
            assert set(items[:returned].tolist()) <= eligible
            assert len(set(items[:returned].tolist())) == returned
            assert (items[returned:] == -1).all()
            assert np.isfinite(scores[:returned]).all()
            assert (scores[returned:] == -np.inf).all()
            assert (np.diff(scores[:returned]) <= 0).all()


def by_plain_network(histories: Any, *, beam_width: int, k: int, excluded: list[int]) -> list[list[int]]:
    """What a beam of exactly this width finds with the plain network."""
    model = stirred_model(SETTINGS, TREE, seed=0)
    eligibility = Eligibility(TREE, excluded_items=ragged([excluded] * len(histories)))
    rankings = [
        beam_search(
            TREE,
            plain_scores(model, history),
            eligibility=eligibility,
            request=request,
            beam_width=beam_width,
            k=k,
        )
        for request, history in enumerate(histories)
    ]
    return [TREE.item_at_leaf[ranking.leaves].tolist() for ranking in rankings]


@pytest.mark.parametrize(
    ("beam_width", "k", "excluded", "used"),
    [(4, 2, [], 4), (1, 6, [], 6), (4, 2, [0, 1, 2], 7), (2, 2, [0, 1, 2], 4), (1, 3, [0, 0, -1], 4)],
    ids=["as told", "at least k", "3 more", "at most twice", "repeats and unknown items do not count"],
)
def test_the_beam_is_at_least_k_wide_and_grows_with_exclusions(
    beam_width: int, k: int, excluded: list[int], used: int
) -> None:
    engine, _ = engine_for()
    histories = some_histories(40, seed=3)
    found = engine.search(asking(histories, excluded=[excluded] * 40), k=k, beam_width=beam_width)
    assert found.items.tolist() == by_plain_network(histories, beam_width=used, k=k, excluded=excluded)
    assert found.items.tolist() != by_plain_network(histories, beam_width=used - 1, k=k, excluded=excluded)


def test_nobody_asks_nobody_answers() -> None:
    engine, _ = engine_for()
    for found in (
        engine.search(asking(some_histories(0)), k=3, beam_width=5),
        engine.scan(asking(some_histories(0)), k=3),
    ):
        assert found.items.shape == found.scores.shape == (0, 3)


def test_an_empty_history_is_answered_and_everyone_with_one_gets_the_same() -> None:
    engine, _ = engine_for()
    found = engine.search(Requests(Histories.of_lists([[], []])), k=4, beam_width=4)
    assert (found.items >= 0).all()
    np.testing.assert_array_equal(found.items[0], found.items[1])


@pytest.mark.parametrize("method", ["search", "scan"])
@pytest.mark.parametrize(
    ("history", "k", "message"),
    [
        ([23], 3, "got 23"),
        ([-2, 5], 3, "got -2"),
        ([-1], 3, "from 0 to 22"),
        ([0], 2**62, "k from 1 to 2,147,483,647, got"),
        ([0], 0, "k from 1 to 2,147,483,647, got 0"),
    ],
)
def test_questions_that_do_not_fit_are_refused(method: str, history: list[int], k: int, message: str) -> None:
    engine, _ = engine_for()
    options: dict[str, Any] = {"beam_width": 5} if method == "search" else {}
    with pytest.raises(InputError, match=message):
        getattr(engine, method)(Requests(Histories.of_lists([history])), k=k, **options)


def test_filters_that_do_not_fit_are_refused() -> None:
    engine, _ = engine_for()
    with pytest.raises(InputError, match="each of 23 items"):
        engine.scan(asking(some_histories(2), allowed=np.ones(5, dtype=np.bool_)), k=3)
    with pytest.raises(InputError, match="for each of 2 histories, got 1"):
        asking(some_histories(2), excluded=[[1]])


@pytest.mark.parametrize("module", ["beamtree.retrieval.engine", "beamtree.retrieval.recommender"])
def test_retrieval_loads_no_torch(module: str) -> None:
    program = f"import sys, {module}; print([name for name in ('torch', 'sklearn', 'scipy') if name in sys.modules])"
    root = Path(__file__).parents[2]
    answer = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize(("learned", "told"), [("shared", "separate"), ("separate", "shared")])
def test_weights_and_settings_must_agree_on_the_table_of_histories(
    learned: str, told: str, request: pytest.FixtureRequest
) -> None:
    if "reference" in request.node.name:
        pytest.skip("the kernels' scorer checks it")
    tree = random_tree(9, branching=2, seed=0)
    weights = weights_of(stirred_model(model_settings(history_table=learned), tree, seed=0))
    with pytest.raises(InputError, match=rf"history_table = '{told}'"):
        engine_over(weights, tree, settings=model_settings(history_table=told))
