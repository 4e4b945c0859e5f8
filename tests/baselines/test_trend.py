import numpy as np
import pytest
from numpy.typing import NDArray

from beamtree.baselines import trend
from beamtree.baselines.trend import DecayedCounts, TrendPopularity, has_clock
from beamtree.data.split import Spans, Split
from tests.baselines.small_logs import ask, budget, dataset_of, halves, whole


def counts(half_life: float) -> DecayedCounts:
    """Item 0 at the moments 0, 1 and 2, item 1 at 3, item 2 at 10; first_time 100."""
    times, items = np.array([0.0, 1.0, 2.0, 3.0, 10.0]), np.array([0, 0, 0, 1, 2], dtype=np.int32)
    return DecayedCounts(times, items, 4, 100.0, half_life)


def at(*moments: float) -> NDArray[np.float64]:
    return np.array(moments)


def test_what_happened_strictly_before_counts_the_less_the_older_it_is() -> None:
    """Half-life 1, relative to the last interaction before: at 103 only 0, at 2, 1 and 0; at 103.5 also 1, at 3."""
    scores = counts(1.0)(ask([], [], [], times=at(103.0, 103.5, 100.0)))
    np.testing.assert_allclose(scores[0], [1 + 1 / 2 + 1 / 4, 0, 0, 0])
    np.testing.assert_allclose(scores[1], [1 / 2 + 1 / 4 + 1 / 8, 1, 0, 0])
    assert not scores[2].any(), "nothing happened before the first moment"


def test_without_a_time_everything_that_is_known_counts() -> None:
    np.testing.assert_allclose(counts(1e9)(ask([]))[0], [3, 1, 1, 0], rtol=1e-6)


@pytest.mark.parametrize("stages", [1, 2, 5, 64])
def test_stages_do_not_change_the_sum(monkeypatch: pytest.MonkeyPatch, stages: int) -> None:
    generator = np.random.default_rng(0)
    times, items = np.sort(generator.integers(0, 50, size=200)).astype(float), generator.integers(0, 6, size=200)
    moments = generator.integers(0, 60, size=30).astype(float)
    monkeypatch.setattr(trend, "STAGES", stages)
    model = DecayedCounts(times, items.astype(np.int32), 6, 0.0, 7.0)
    scores = model(ask(*[[] for _ in moments], times=moments))
    for row, moment in enumerate(moments):
        before = times < moment
        last = times[before].max(initial=0.0)
        weights = 2.0 ** ((times[before] - last) / 7.0)
        expected = np.bincount(items[before], weights=weights, minlength=6)
        np.testing.assert_allclose(scores[row], expected, rtol=1e-5)


def test_validation_users_choose_the_half_life() -> None:
    """Thirty items were popular long ago, item 30 is new: those who ask at the end go on to what is new, or to old."""
    everything = [[*range(30)] for _ in range(4)]
    times: list[list[float]] = [[3.0 * place for place in range(30)] for _ in range(4)]
    best = []
    for label in (30, 29):
        lists, moments = [*everything, [30], [31, label]], [*times, [999.0], [1000.0, 1001.0]]
        dataset = dataset_of(lists, num_items=60, times=moments)
        fitted = TrendPopularity().fit(dataset, halves(dataset, validation=[5]), budget=budget())
        best.append(fitted.search(ask([], times=at(1000.0)), k=20).items[0].tolist())
    assert best[0][0] == 30
    assert 29 in best[1]
    assert 30 not in best[1]


def test_numbers_of_interactions_are_no_clock() -> None:
    order = dataset_of([[0, 1, 1], [1], [2, 1]], num_items=3, times=[[0, 1, 2], [0], [5, 6]])
    assert not has_clock(order)
    assert not has_clock(dataset_of([[0, 1]], num_items=2))
    assert not has_clock(dataset_of([[0, 1]], num_items=2, times=[[7, 7]]))
    assert has_clock(dataset_of([[0, 1, 1], [1]], num_items=2, times=[[0, 1, 3], [0]]))


def test_without_a_clock_it_is_popularity() -> None:
    order = dataset_of([[0, 1, 1], [1], [2, 1]], num_items=3, times=[[0, 1, 2], [0], [0, 1]])
    fitted = TrendPopularity().fit(order, whole(order), budget=budget())
    found = fitted.search(ask([], times=at(0)), k=3)
    assert (found.items.tolist(), found.scores.tolist()) == ([[1, 0, 2]], [[4, 1, 1]])


def test_where_all_was_trained_on_at_one_moment_it_is_popularity() -> None:
    dataset = dataset_of([[0, 1], [1], [1, 2, 0]], num_items=3, times=[[5, 9], [5], [5, 5, 7]])
    start, end = np.array([0, 2, 3]), np.array([1, 3, 5])
    nobody = whole(dataset).test
    split = Split(Spans(np.arange(3, dtype=np.int32), start, end), nobody, nobody, 1, "one moment")
    found = TrendPopularity().fit(dataset, split, budget=budget()).search(ask([], times=at(9.0)), k=3)
    assert found.items.tolist() == [[1, 0, 2]]
    assert found.scores.tolist() == [[2, 1, 1]]
