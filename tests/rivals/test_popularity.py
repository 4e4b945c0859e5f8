import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from beamtree.data.sequences import Sequences
from beamtree.data.split import Spans
from beamtree.errors import InputError
from beamtree.rivals.popularity import Popularity


def flat(lists: list[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    items = np.array([item for entry in lists for item in entry], dtype=np.int32)
    return items, np.cumsum([0] + [len(entry) for entry in lists], dtype=np.int64)


def spans(starts: list[int], ends: list[int]) -> Spans:
    users = np.arange(len(starts), dtype=np.int32)
    return Spans(users, np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))


def test_only_training_spans_count() -> None:
    sequences = Sequences(*flat([[2, 2, 1, 0, 0, 0], [1, 2, 0], [3, 3, 3, 3]]))
    popularity = Popularity.fit(sequences, spans([0, 6], [3, 9]), num_items=5)
    assert popularity.counts.tolist() == [1, 2, 3, 0, 0], "what is held out, and a user without a span, do not count"


def test_most_interactions_first_and_lower_id_among_equals() -> None:
    items, scores = Popularity(np.array([1, 4, 0, 4, 0])).recommend(4, num_users=2)
    assert items.tolist() == [[1, 3, 0, 2]] * 2
    assert scores.tolist() == [[4, 4, 1, 0]] * 2
    assert items.dtype == np.int32
    assert scores.dtype == np.float32


def test_seen_items_are_left_out_when_asked() -> None:
    popularity = Popularity(np.array([5, 4, 3, 2, 1]))
    seen = flat([[], [0, 0, 2, -1], [4, 3, 2, 1, 0], [3]])
    items, scores = popularity.recommend(3, num_users=4, seen=seen)
    assert items.tolist() == [[0, 1, 2], [1, 3, 4], [-1, -1, -1], [0, 1, 2]]
    assert scores[1].tolist() == [4, 2, 1]
    assert scores[2].tolist() == [-np.inf] * 3


def test_more_asked_for_than_there_is() -> None:
    popularity = Popularity(np.array([1, 2]))
    items, scores = popularity.recommend(4, num_users=1)
    assert items.tolist() == [[1, 0, -1, -1]]
    assert scores.tolist() == [[2, 1, -np.inf, -np.inf]]
    assert popularity.recommend(4, num_users=1, seen=flat([[1]]))[0].tolist() == [[0, -1, -1, -1]]


def test_no_users_get_nothing() -> None:
    items, scores = Popularity(np.array([1, 2])).recommend(3, num_users=0, seen=flat([]))
    assert items.shape == scores.shape == (0, 3)


@settings(max_examples=80, deadline=None)
@given(num_items=st.integers(1, 25), k=st.integers(1, 30), users=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_same_as_leaving_out_by_hand(num_items: int, k: int, users: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 6, size=num_items)
    seen = [generator.integers(-1, num_items, size=generator.integers(0, 30)).tolist() for _ in range(users)]
    items, scores = Popularity(counts).recommend(k, num_users=users, seen=flat(seen))
    ranking = sorted(range(num_items), key=lambda item: (-counts[item], item))
    for user in range(users):
        expected = [item for item in ranking if item not in seen[user]][:k]
        nothing = k - len(expected)
        assert items[user].tolist() == expected + [-1] * nothing
        assert scores[user].tolist() == [counts[item] for item in expected] + [-np.inf] * nothing


def test_counts_are_kept_and_read_only() -> None:
    counts = np.array([1, 2])
    popularity = Popularity(counts)
    counts[0] = 9
    assert popularity.recommend(1, num_users=1)[0].tolist() == [[1]]
    with pytest.raises(ValueError, match="read-only"):
        popularity.counts[0] = 9


def test_items_outside_the_catalogue_are_refused() -> None:
    with pytest.raises(InputError, match="below num_items = 2, got item 2"):
        Popularity.fit(Sequences(*flat([[0, 2]])), spans([0], [2]), num_items=2)


@pytest.mark.parametrize(
    ("k", "num_users", "seen", "message"),
    [
        (0, 1, None, "k of 1 or more"),
        (1, -1, None, "-1 users"),
        (1, 2, [[0]], "for 2 users"),
        (1, 1, [[3]], "from 0 to 2"),
        (1, 1, [[-2]], "from 0 to 2"),
    ],
)
def test_what_does_not_fit_is_refused(k: int, num_users: int, seen: list[list[int]] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Popularity(np.array([1, 2, 3])).recommend(k, num_users=num_users, seen=None if seen is None else flat(seen))
