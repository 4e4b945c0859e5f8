"""Filters over an index that knows none, with an index that can be read."""

from dataclasses import dataclass, field

import numpy as np

from beamtree.baselines.indexes.index import IndexedItems, VectorIndex, rising
from beamtree.data.requests import Histories, Requests
from beamtree.retrieval.result import SearchResult
from beamtree.types import NOTHING, Float32Array
from tests.baselines.small_logs import ask
from tests.small import sequences_of

LINE = np.arange(8, dtype=np.float32)[:, None]
"""Item i has the vector (i): a query of (1) prefers the later item."""


@dataclass(frozen=True)
class Ones:
    """Everybody asks with (1)."""

    item_vectors: Float32Array = field(default_factory=LINE.copy)

    def queries(self, requests: Requests) -> Float32Array:
        return np.ones((len(requests), 1), dtype=np.float32)


def even_items(asked: list[int]) -> VectorIndex:
    """Finds items of even number only, under scores ten times too high; `effort` of them. asked: notes each k."""

    def search(queries: Float32Array, k: int, effort: int) -> SearchResult:
        asked.append(k)
        items = np.full((len(queries), k), NOTHING, dtype=np.int32)
        known = np.array([6, 4, 2, 0], dtype=np.int32)[: min(k, effort)]
        items[:, : len(known)] = known
        return SearchResult(items, np.where(items == NOTHING, -np.inf, 10.0 * items).astype(np.float32))

    return VectorIndex(search, "items", efforts=(1, 2, 4), usual_effort=4, index_bytes=7)


def searched(requests: Requests, *, k: int, effort: int = 4) -> tuple[SearchResult, list[int]]:
    asked: list[int] = []
    return IndexedItems(Ones(), even_items(asked), effort=effort).search(requests, k=k), asked


def test_what_the_index_finds_is_taken_as_it_is() -> None:
    found, asked = searched(ask([0]), k=3)
    assert found.items.tolist() == [[6, 4, 2]]
    assert found.scores.tolist() == [[60.0, 40.0, 20.0]]
    assert asked == [3]


def test_it_is_asked_for_as_many_more_as_are_excluded() -> None:
    """Three excluded items are rounded up to four; requests of one count are asked together."""
    found, asked = searched(ask([0], [0], [0], excluded=[[], [6, 4, 1], [6]]), k=1)
    assert found.items[:, 0].tolist() == [6, 2, 4]
    assert asked == [1, 2, 5]


def test_where_few_are_allowed_it_is_asked_for_more() -> None:
    allowed = np.zeros(8, dtype=np.bool_)
    allowed[[0, 1]] = True
    found, asked = searched(Requests(Histories.of_lists([[0]]), allowed=allowed), k=1)
    assert found.items.tolist() == [[0]]
    assert asked == [5], "one of eight in four: three more, rounded up to four"


def test_it_is_never_asked_for_more_than_there_is() -> None:
    _, asked = searched(ask([0], excluded=[[1, 2, 3, 4, 5, 6, 7]]), k=5)
    assert asked == [8]


def test_the_rest_is_scanned_and_follows_below() -> None:
    """The index gives 6 alone; of all others that are eligible the scan knows the best."""
    found, _ = searched(ask([0], excluded=[[7, 3]]), k=4, effort=1)
    assert found.items.tolist() == [[6, 5, 4, 2]]
    assert found.scores[0, 0] == 60.0
    assert (np.diff(found.scores[0]) < 0).all()


def test_scanned_scores_above_those_found_are_lowered_together() -> None:
    source = Ones(LINE * 100)
    found = IndexedItems(source, even_items([]), effort=1).search(ask([0]), k=3)
    assert found.items.tolist() == [[6, 7, 5]]
    assert found.scores[0, 1] < 60.0
    assert np.isclose(found.scores[0, 1] - found.scores[0, 2], 200.0)


def test_where_nothing_is_eligible_nothing_comes_back() -> None:
    requests = Requests(Histories.of_lists([[0]]), excluded=sequences_of([list(range(8))]))
    found, _ = searched(requests, k=2)
    assert found.items.tolist() == [[NOTHING, NOTHING]]
    assert found.scores.tolist() == [[-np.inf, -np.inf]]


def test_efforts_end_with_the_greatest() -> None:
    assert rising(4, 1, 2, 8, 2, most=5) == (1, 2, 4, 5)
