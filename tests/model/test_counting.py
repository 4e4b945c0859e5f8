"""How often each item occurs inside the training spans, and what memory makes of counts, worked out by hand."""

import numpy as np
import pytest

from beamtree import native
from beamtree.data.sequences import Sequences
from beamtree.data.split import Spans
from beamtree.errors import InputError
from beamtree.model import counting
from beamtree.model.counting import count_company, count_followers, count_items, count_returns
from beamtree.model.memory import Memory
from tests.small import sequences_of

ITEMS = np.array([0, 3, 3, 1, 0, 3, 4, 1], dtype=np.int32)


def spans(*bounds: tuple[int, int]) -> Spans:
    start, end = np.array(bounds, dtype=np.int64).reshape(-1, 2).T
    return Spans(np.arange(len(bounds), dtype=np.int32), start, end)


def test_only_what_is_inside_the_spans_is_counted() -> None:
    assert count_items(ITEMS, spans((0, 3), (4, 6)), num_items=5).tolist() == [2, 0, 0, 3, 0]
    assert count_items(ITEMS, spans((2, 2)), num_items=3).tolist() == [0, 0, 0]


def test_an_item_that_the_data_set_does_not_have_is_refused() -> None:
    assert count_items(ITEMS, spans((0, 6)), num_items=4).tolist() == [2, 1, 0, 3], "item 4 is outside"
    with pytest.raises(InputError, match=r"below num_items = 4, got item 4"):
        count_items(ITEMS, spans((0, 7)), num_items=4)


def test_company_is_as_strong_as_the_cosine_and_followers_and_popularity_as_their_logarithms() -> None:
    """Items 0, 1 and 2 are in 4, 2 and 1 spans; 0 is with 1 in two of them and with 2 in one."""
    sequences = sequences_of([[0, 1], [0, 1], [0, 2], [0]])
    users = spans(*zip(sequences.offsets[:-1], sequences.offsets[1:], strict=True))
    memory = Memory.count(sequences, users, num_items=4, balance=0.5)
    company, followers = memory.company, memory.transitions
    assert [company.items[a:b].tolist() for a, b in zip(company.offsets, company.offsets[1:], strict=False)] == [
        [1, 2],
        [0],
        [0],
        [],
    ]
    both, one = 2 / np.sqrt(4 * 2), 1 / np.sqrt(4 * 1)
    np.testing.assert_allclose(company.strengths, [both, one, both, one], rtol=1e-3)
    np.testing.assert_allclose(followers.strengths, np.log([1 + 2, 1 + 1]), rtol=1e-3)
    np.testing.assert_allclose(memory.popularity, np.log([5, 3, 2, 1]), rtol=1e-6)


def weighed(lists: list[list[tuple[int, float]]]) -> tuple[Sequences, Spans]:
    """Sequences of (item, weight), and a span for each."""
    plain = sequences_of([[item for item, _ in entry] for entry in lists])
    weights = np.array([weight for entry in lists for _, weight in entry], dtype=np.float32)
    users = spans(*zip(plain.offsets[:-1], plain.offsets[1:], strict=True))
    return Sequences(plain.items, plain.offsets, weights), users


def lists_of(found: counting.CountedPairs) -> list[dict[int, float]]:
    return [
        dict(zip(found.items[a:b].tolist(), found.counts[a:b].tolist(), strict=True))
        for a, b in zip(found.offsets, found.offsets[1:], strict=False)
    ]


def test_what_follows_counts_with_the_weight_of_what_followed() -> None:
    """Item 1 is bought (5) after 0 is viewed, and viewed (1) after it once; nothing points to item 2, of weight 0."""
    sequences, users = weighed([[(0, 1.0), (1, 5.0), (2, 0.0)], [(0, 1.0), (1, 1.0)]])
    found = count_followers(sequences.items, users, num_items=3, window=2, most=9, weights=sequences.weights)
    assert lists_of(found) == [{1: 6.0}, {}, {}]
    assert count_items(sequences.items, users, num_items=3, weights=sequences.weights).tolist() == [2.0, 6.0, 0.0]


def test_company_is_the_cosine_of_having_one_item_and_wanting_the_other() -> None:
    """Two users view 0; one of them buys 1, of weight 3, the other only views it."""
    sequences, users = weighed([[(0, 0.0), (1, 0.0), (1, 3.0)], [(0, 0.0), (1, 1.0)]])
    memory = Memory.count(sequences, users, num_items=2, balance=0.5)
    assert memory.company.items.tolist() == [1], "nobody wants item 0"
    np.testing.assert_allclose(memory.company.strengths, [(3 + 1) / np.sqrt(2 * (9 + 1))], rtol=1e-3)
    np.testing.assert_allclose(memory.popularity, np.log1p([0.0, 4.0]), rtol=1e-6)


def test_only_targets_count_as_met_again() -> None:
    sequences, users = weighed([[(0, 1.0), (1, 1.0), (0, 0.0), (1, 1.0)]])
    had, again = count_returns(sequences.items, users, num_items=2, weights=sequences.weights)
    assert had.tolist() == [3, 2]
    assert again.tolist() == [0, 2]


@pytest.mark.skipif(not native.is_available(), reason="the kernels are not compiled")
@pytest.mark.parametrize("dense", [0, 8])
@pytest.mark.parametrize("at_a_time", [1, 50, 2**22])
@pytest.mark.parametrize("kind", ["none", "equal", "decayed", "with zeros"])
def test_the_kernels_count_as_numpy_does(
    kind: str, at_a_time: int, dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, weighted or not, however many pairs NumPy counts together and in whichever of its two ways."""
    monkeypatch.setattr(counting, "PAIRS_AT_A_TIME", at_a_time)
    monkeypatch.setattr(counting, "DENSE", dense)
    generator = np.random.default_rng(0)
    sequences = sequences_of([generator.integers(0, 12, size=size).tolist() for size in (0, 1, 9, 60, 7)])
    users = spans(*zip(sequences.offsets[:-1], sequences.offsets[1:], strict=True))
    decayed = generator.uniform(0.0, 3.0, size=len(sequences.items)).astype(np.float32)
    weights = {
        "none": None,
        "equal": np.ones_like(decayed),
        "decayed": decayed,
        "with zeros": np.where(decayed < 1.5, np.float32(0.0), decayed),
    }[kind]
    for most in (3, 100):
        found = []
        for has_kernels in (True, False):
            with monkeypatch.context() as patched:
                if not has_kernels:
                    patched.setattr(native, "is_available", lambda: False)
                followers = count_followers(sequences.items, users, num_items=13, window=4, most=most, weights=weights)
                company = count_company(sequences.items, users, num_items=13, most=most, weights=weights)
            found.append([*followers, *company.pairs, company.had, company.wanted])
        for in_kernels, in_numpy in zip(*found, strict=True):
            assert in_kernels.dtype == in_numpy.dtype
            assert in_kernels.tobytes() == in_numpy.tobytes()
