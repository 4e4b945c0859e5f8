"""Whatever answers requests: a tree by beam and by scan, and tables of scores with filters, ties and blocks."""

import numpy as np
import pytest

from beamtree.data.requests import Histories, Requests
from beamtree.errors import InputError
from beamtree.evaluation import answers
from beamtree.evaluation.answers import BeamSearch, ExactScan, ScoredItems, scored_by
from beamtree.retrieval.engine import Engine
from beamtree.scorer import PreparedScores
from beamtree.tree.build import plant
from beamtree.types import Float32Array, Int32Array, Int64Array
from tests.small import sequences_of


class Misleading:
    """On a binary tree of four leaves the left half promises more, and the best leaf is the last."""

    def prepare(self, requests: Requests) -> PreparedScores:  # noqa: ARG002
        return self

    def scores(self, request: int, level: int, nodes: Int64Array) -> Float32Array:  # noqa: ARG002
        return (nodes if level == 2 else -nodes).astype(np.float32)


def test_a_narrow_beam_misses_what_the_scan_finds() -> None:
    engine = Engine(Misleading(), plant(np.arange(4, dtype=np.int32), branching=2))
    requests = Requests(Histories.of_lists([[0]]))
    assert ExactScan(engine).search(requests, k=1).items.tolist() == [[3]]
    assert BeamSearch(engine, 1).search(requests, k=1).items.tolist() == [[1]]
    assert BeamSearch(engine, 2).search(requests, k=1).items.tolist() == [[3]]


@pytest.mark.parametrize("at_a_time", [1, 13, 10_000])
def test_best_scores_with_ties_filters_and_fewer_than_asked_in_blocks_of_requests(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    """Against a full stable sort; scores of few values; requests exclude up to all but two of six items."""
    monkeypatch.setattr(answers, "SCORES_AT_A_TIME", at_a_time)
    generator = np.random.default_rng(4)
    table = generator.integers(0, 3, size=(6, 6)).astype(np.float32)
    excluded = [[*generator.permutation(6)[: row % 5].tolist(), -1] for row in range(9)]
    allowed = np.array([True, True, True, True, True, False])

    def score(requests: Requests) -> Float32Array:
        return table[requests.histories.latest(1)[:, 0]]

    requests = Requests(
        Histories.of_lists([[5, row % 6] for row in range(9)]), excluded=sequences_of(excluded), allowed=allowed
    )
    for k in (1, 3, 6, 8):
        found = ScoredItems(score, 6).search(requests, k=k)
        for row in range(9):
            best = [
                item
                for item in np.argsort(-table[row % 6], kind="stable").tolist()
                if item not in excluded[row] and allowed[item]
            ]
            assert found.items[row].tolist() == (best + [-1] * 8)[:k]
            assert found.scores[row].tolist() == ([float(table[row % 6, item]) for item in best] + [-np.inf] * 8)[:k]


def test_a_model_of_padded_histories_is_asked_with_its_latest_items() -> None:
    class Echo:
        history_length = 3

        def scores(self, histories: Int32Array) -> Float32Array:
            assert histories.tolist() == [[1, 2, 3], [-1, -1, 4]]
            return np.eye(5, dtype=np.float32)[histories[:, -1]]

    requests = Requests(Histories.of_lists([[0, 1, 2, 3], [4]]))
    assert scored_by(Echo(), num_items=5).search(requests, k=2).items.tolist() == [[3, 0], [4, 0]]


def test_a_k_below_one_is_refused() -> None:
    scored = ScoredItems(lambda requests: np.zeros((len(requests), 2), dtype=np.float32), 2)
    with pytest.raises(InputError, match="k of at least 1, got 0"):
        scored.search(Requests(Histories.of_lists([[0]])), k=0)
