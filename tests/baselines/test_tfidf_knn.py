import numpy as np
import pytest

from beamtree.baselines import tfidf_knn
from beamtree.baselines.tfidf_knn import TfidfKnn
from tests.baselines.small_logs import ask, budget, dataset_of, whole

# Spans {0, 1}, {0, 2}, {3}: item 0 is in two of three, the others in one.
LISTS = [[0, 1, 1], [0, 2], [3]]
COMMON, RARE = np.log1p(3 / 2), np.log1p(3 / 1)


def test_similarities_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """History {0, 1}: the same as span 0 (cosine 1); with span 1 it shares item 0; with span 2 nothing."""
    monkeypatch.setattr(tfidf_knn, "NEIGHBOURS", (3,))
    dataset = dataset_of(LISTS, num_items=5)
    fitted = TfidfKnn().fit(dataset, whole(dataset), budget=budget())
    shared = COMMON**2 / (COMMON**2 + RARE**2)
    scores = fitted.score(ask([1, 0, 0]))[0]
    np.testing.assert_allclose(scores[:3], [1 + shared, 1, shared], rtol=1e-6)
    np.testing.assert_allclose(scores[3:], [-1 / 2, -1], err_msg="popularity: item 3 once, item 4 never")


def test_only_the_nearest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfidf_knn, "NEIGHBOURS", (1,))
    dataset = dataset_of(LISTS, num_items=5)
    fitted = TfidfKnn().fit(dataset, whole(dataset), budget=budget())
    scores = fitted.score(ask([0, 1]))[0]
    np.testing.assert_allclose(scores[:2], [1, 1], rtol=1e-6)
    assert scores[2] < 0, "the second span is not asked"


@pytest.mark.parametrize("at_a_time", [1, 7, 10_000])
def test_blocks_of_requests_do_not_change_the_answers(monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    generator = np.random.default_rng(0)
    lists = [generator.integers(0, 12, size=generator.integers(1, 9)).tolist() for _ in range(40)]
    dataset = dataset_of(lists, num_items=12)
    monkeypatch.setattr(tfidf_knn, "NEIGHBOURS", (5,))
    fitted = TfidfKnn().fit(dataset, whole(dataset), budget=budget())
    expected = fitted.score(ask(*lists[:10])).tobytes()
    monkeypatch.setattr(tfidf_knn, "SIMILARITIES_AT_A_TIME", at_a_time)
    assert fitted.score(ask(*lists[:10])).tobytes() == expected
