"""How often each item occurs inside the training spans, counted by hand."""

import numpy as np
import pytest

from beamtree.data.split import Spans
from beamtree.errors import InputError
from beamtree.model.counting import count_items

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
