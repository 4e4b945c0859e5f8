"""A table of candidates against the search that it stands for."""

import numpy as np
import pytest

from beamtree.data.requests import Histories, Requests
from beamtree.data.sequences import Sequences
from beamtree.evaluation.metrics import measure
from beamtree.fitting.pool import CandidatePool, gather_candidates
from beamtree.retrieval.engine import Engine
from beamtree.tree.build import plant
from beamtree.types import Float32Array, Int64Array

NUM_ITEMS, NUM_USERS = 130, 9
TREE = plant(np.random.default_rng(0).permutation(NUM_ITEMS), branching=2)
HISTORIES = Histories.of_lists([[user, user + 1] for user in range(NUM_USERS)])
SEEN = Sequences(HISTORIES.items, np.arange(NUM_USERS + 1) * 2)
LABELS = (np.arange(NUM_USERS * 3, dtype=np.int32), np.arange(NUM_USERS + 1, dtype=np.int64) * 3)


class Table:
    """Scores nodes by a table (requests, items) at the leaves; an inner node has the best leaf below."""

    def __init__(self, scores: np.ndarray) -> None:
        self._scores = scores

    def prepare(self, _requests: Requests) -> "Table":
        return self

    def scores(self, request: int, level: int, nodes: Int64Array) -> Float32Array:
        at_leaves = self._scores[request][TREE.item_at_leaf]
        first, end = TREE.leaf_ranges(nodes, level)
        return np.array([at_leaves[a:b].max() for a, b in zip(first, end, strict=True)], dtype=np.float32)


def tables(seed: int = 1) -> dict[str, Table]:
    generator = np.random.default_rng(seed)
    return {name: Table(generator.normal(size=(NUM_USERS, NUM_ITEMS)).astype(np.float32)) for name in ("a", "b")}


def pool_of(scorers: dict[str, Table], *, excluded: Sequences | None = SEEN) -> CandidatePool:
    requests = Requests(HISTORIES, excluded=excluded)
    return gather_candidates(requests, LABELS, TREE, scorers=scorers, proposers=["a"], beam_width=40)


def test_candidates_are_what_a_proposer_recommends_and_nothing_twice() -> None:
    scorers = tables()
    pool = pool_of(scorers)
    found = Engine(scorers["a"], TREE).scan(Requests(HISTORIES, excluded=SEEN), k=100).items
    for row, items in enumerate(pool.items):
        candidates = items[items >= 0]
        assert sorted(candidates.tolist()) == sorted(found[row].tolist())
        assert not set(candidates.tolist()) & {row, row + 1}, "seen items are no candidates"


@pytest.mark.parametrize("weights", [{"a": 1.0}, {"a": 1.0, "b": 0.2}])
def test_a_measure_is_that_of_the_weighted_sum(weights: dict[str, float]) -> None:
    scorers = tables()
    pool = pool_of(scorers)
    total = sum(weight * scorers[name]._scores for name, weight in weights.items())
    assert isinstance(total, np.ndarray)
    found = Engine(Table(total), TREE).scan(Requests(HISTORIES, excluded=SEEN), k=20).items
    wanted = measure(found, LABELS, num_items=NUM_ITEMS, cutoffs=(20,))
    assert dict(pool.measure(weights)) == pytest.approx(dict(wanted))


def test_a_weight_of_zero_is_left_out() -> None:
    pool = pool_of(tables())
    broken = CandidatePool(pool.items, {**pool.evidence, "b": pool.evidence["b"] * np.nan}, LABELS, num_items=NUM_ITEMS)
    assert dict(broken.measure({"a": 1.0, "b": 0.0})) == dict(pool.measure({"a": 1.0}))


def test_spread_is_that_between_the_candidates_of_a_user() -> None:
    pool = pool_of(tables())
    offsets = np.arange(NUM_USERS, dtype=np.float32)[:, None] * 100
    shifted = CandidatePool(pool.items, {"a": 3 * pool.evidence["a"] + offsets}, LABELS, num_items=NUM_ITEMS)
    assert shifted.spread("a") == pytest.approx(3 * pool.spread("a"), rel=1e-4)


def test_users_with_few_candidates_get_what_there_is() -> None:
    allowed = np.zeros(NUM_ITEMS, dtype=bool)
    allowed[[3, 50, 7]] = True
    requests = Requests(HISTORIES, allowed=allowed)
    pool = gather_candidates(requests, LABELS, TREE, scorers=tables(), proposers=["a", "b"], beam_width=40)
    assert {tuple(row[row >= 0]) for row in pool.items} == {(3, 7, 50)}
    assert pool.measure({"a": 1.0})["precision@20"] == pytest.approx(
        np.mean([len({3, 7, 50} & {*range(3 * user, 3 * user + 3)}) / 20 for user in range(NUM_USERS)])
    )
