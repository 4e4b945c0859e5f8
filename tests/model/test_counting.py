"""How often each item occurs inside the training spans, and what memory makes of counts, worked out by hand."""

import numpy as np
import pytest

from beamtree.config import MemorySettings
from beamtree.data.split import Spans
from beamtree.errors import InputError
from beamtree.model.counting import count_items
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
    memory = Memory.count(sequences, users, num_items=4, settings=MemorySettings())
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
