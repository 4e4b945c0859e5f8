import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.data.cooccurrence import cooccurrence_vectors
from beamtree.data.split import Spans, split_none
from tests.small import sequences_of


def vectors_of(lists: list[list[int]], *, num_items: int, size: int = 4, seed: int = 0) -> npt.NDArray[np.float32]:
    sequences = sequences_of(lists)
    generator = np.random.default_rng(seed)
    return cooccurrence_vectors(
        sequences, split_none(sequences).train, num_items=num_items, size=size, generator=generator
    )


def test_items_of_the_same_people_point_the_same_way() -> None:
    """Two circles of users that share nothing: the cosine is 1 within a circle and 0 across."""
    vectors = vectors_of([[0, 1], [1, 0], [0, 1], [2, 3], [3, 2]], num_items=4)
    np.testing.assert_allclose(vectors @ vectors.T, np.kron(np.eye(2), np.ones((2, 2))), atol=1e-5)


def test_an_item_between_two_circles_lies_between_them() -> None:
    vectors = vectors_of([[0, 1], [0, 1], [2, 1], [2, 1]], num_items=3)
    assert vectors[0] @ vectors[1] == pytest.approx(vectors[2] @ vectors[1], abs=1e-4)
    assert vectors[0] @ vectors[2] + 0.2 < vectors[0] @ vectors[1] < 0.99


def test_only_training_spans_count() -> None:
    sequences = sequences_of([[0, 1, 3], [0, 1, 2], [2, 3]])
    spans = Spans(np.arange(3, dtype=np.int32), start=np.array([0, 3, 6]), end=np.array([2, 5, 8]))
    cut = cooccurrence_vectors(sequences, spans, num_items=4, size=4, generator=np.random.default_rng(0))
    np.testing.assert_array_equal(cut, vectors_of([[0, 1], [0, 1], [2, 3]], num_items=4))


def test_one_very_active_user_does_not_decide_alone() -> None:
    """Ten people pair 0 with 1 and 2 with 3; one has touched a hundred items, and 1 and 2 among them."""
    vectors = vectors_of([[0, 1]] * 5 + [[2, 3]] * 5 + [list(range(1, 3)) + list(range(4, 102))], num_items=102, size=2)
    assert vectors[0] @ vectors[1] > 0.9 > 0.3 > abs(vectors[1] @ vectors[2])


@pytest.mark.parametrize("seed", range(12))
def test_rounding_is_not_taken_for_an_opinion(seed: int) -> None:
    """Half of the items never occur; a decomposition of this size leaves traces of rounding there."""
    generator = np.random.default_rng(seed)
    users, items = generator.integers(20, 400), int(generator.integers(20, 600))
    present = generator.permutation(items)[: items // 2]
    lists = [generator.choice(present, size=generator.integers(1, 30)).tolist() for _ in range(users)]
    vectors = vectors_of(lists, num_items=items, size=24)
    assert not vectors[~np.isin(np.arange(items), np.concatenate(lists))].any()


@settings(max_examples=25, deadline=None)
@given(
    users=st.integers(1, 8), items=st.integers(1, 12), extra=st.integers(0, 4), size=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_vectors_have_length_one_or_nothing_to_say(users: int, items: int, extra: int, size: int, seed: int) -> None:
    """An item that never occurs has the zero vector; with room for all directions every other has length one."""
    generator = np.random.default_rng(seed)
    lists = [generator.integers(0, items, size=generator.integers(1, 6)).tolist() for _ in range(users)]
    vectors = vectors_of(lists, num_items=items + extra, size=size, seed=seed)
    assert vectors.dtype == np.float32
    assert vectors.shape == (items + extra, size)
    occurs = np.isin(np.arange(items + extra), np.concatenate(lists))
    lengths = np.linalg.norm(vectors, axis=1)
    np.testing.assert_array_equal(lengths[~occurs], 0.0)
    known = lengths[occurs]
    assert ((np.abs(known - 1) < 1e-4) | (known == 0)).all()
    assert (known > 0).all() or size < users
    np.testing.assert_array_equal(vectors, vectors_of(lists, num_items=items + extra, size=size, seed=seed))
