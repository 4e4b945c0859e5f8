import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.baselines.popularity import PopularItems, Popularity
from beamtree.data.requests import Histories, Requests
from tests.baselines.small_logs import ask, budget, dataset_of, halves
from tests.small import sequences_of


def test_only_training_spans_count() -> None:
    """The second half of the first user, three times item 0, is held out."""
    dataset = dataset_of([[2, 2, 1, 0, 0, 0], [1, 2, 0]], num_items=5)
    popularity = Popularity().fit(dataset, halves(dataset, validation=[0]), budget=budget())
    assert popularity.counts.tolist() == [1, 2, 3, 0, 0]


def test_most_interactions_first_and_the_lower_item_among_equals() -> None:
    found = PopularItems(np.array([1, 4, 0, 4, 0])).search(ask([0], []), k=4)
    assert found.items.tolist() == [[1, 3, 0, 2]] * 2
    assert found.scores.tolist() == [[4, 4, 1, 0]] * 2


@settings(max_examples=60, deadline=None)
@given(num_items=st.integers(1, 25), k=st.integers(1, 30), users=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_same_as_leaving_out_by_hand(num_items: int, k: int, users: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 6, size=num_items)
    allowed = generator.random(num_items) < 0.8
    excluded = [generator.integers(-1, num_items, size=generator.integers(0, 30)).tolist() for _ in range(users)]
    requests = Requests(Histories.of_lists([[]] * users), excluded=sequences_of(excluded), allowed=allowed)
    found = PopularItems(counts).search(requests, k=k)
    ranking = sorted(range(num_items), key=lambda item: (-counts[item], item))
    for row in range(users):
        expected = [item for item in ranking if item not in excluded[row] and allowed[item]][:k]
        assert found.items[row].tolist() == expected + [-1] * (k - len(expected))


def test_scores_below_zero_keep_the_order() -> None:
    below = PopularItems(np.array([0, 7, 1_000_000, 999_999])).below_zero()
    assert (below < 0).all()
    assert np.argsort(-below).tolist() == [2, 3, 1, 0]
