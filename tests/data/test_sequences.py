import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamtree.data.sequences import Sequences, cut_histories, flatten_spans
from beamtree.errors import DataError


def sequences_of(*histories: list[int]) -> Sequences:
    lengths = [len(history) for history in histories]
    flat = np.array([item for history in histories for item in history], dtype=np.int32)
    return Sequences(items=flat, offsets=np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))))


def test_each_user_owns_a_view_of_the_flat_array() -> None:
    sequences = sequences_of([4, 2], [], [7])
    assert len(sequences) == 3
    assert [sequences.of(user).tolist() for user in range(3)] == [[4, 2], [], [7]]
    assert sequences.lengths.tolist() == [2, 0, 1]
    assert np.shares_memory(sequences.of(0), sequences.items)
    with pytest.raises(IndexError):
        sequences.of(3)
    with pytest.raises(IndexError):
        sequences.of(-1)


@pytest.mark.parametrize(
    ("items", "offsets"),
    [
        (np.zeros(2, np.int64), np.array([0, 2])),
        (np.zeros(2, np.int32), np.array([0, 2], np.int32)),
        (np.zeros(2, np.int32), np.array([0, 1])),
        (np.zeros(2, np.int32), np.array([1, 2])),
        (np.zeros(2, np.int32), np.array([0, 2, 1, 2])),
        (np.zeros(2, np.int32), np.array([], np.int64)),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(items: np.ndarray, offsets: np.ndarray) -> None:
    with pytest.raises(DataError, match="Sequence"):
        Sequences(items=items, offsets=offsets)


def test_histories_are_cut_from_the_end_and_padded_in_front() -> None:
    items = np.arange(10, 20, dtype=np.int32)
    cut = cut_histories(items, starts=np.array([0, 2, 5, 0]), ends=np.array([4, 3, 5, 10]), length=3)
    assert cut.tolist() == [[11, 12, 13], [-1, -1, 12], [-1, -1, -1], [17, 18, 19]]
    assert cut.dtype == np.int32


def test_a_flat_array_without_items_gives_only_padding() -> None:
    nothing = np.array([0])
    cut = cut_histories(np.empty(0, np.int32), starts=nothing, ends=nothing, length=2)
    assert cut.tolist() == [[-1, -1]]


@given(st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=1, max_size=6), st.integers(1, 10))
def test_cutting_agrees_with_slicing(histories: list[list[int]], length: int) -> None:
    sequences = sequences_of(*histories)
    cut = cut_histories(sequences.items, starts=sequences.offsets[:-1], ends=sequences.offsets[1:], length=length)
    expected = [[-1] * (length - len(history[-length:])) + history[-length:] for history in histories]
    assert cut.tolist() == expected


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=6))
def test_flattening_all_spans_restores_the_items(histories: list[list[int]]) -> None:
    sequences = sequences_of(*histories)
    backwards = np.arange(len(histories))[::-1]
    flat, offsets = flatten_spans(
        sequences.items, starts=sequences.offsets[backwards], ends=sequences.offsets[backwards + 1]
    )
    assert [flat[offsets[at] : offsets[at + 1]].tolist() for at in range(len(histories))] == histories[::-1]
