"""Counting by hand, and what a memory says about where a recommendation comes from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree import native
from beamtree.data.sequences import Sequences
from beamtree.data.split import Spans
from beamtree.errors import InputError
from beamtree.model.counting import COMPANY_ITEMS, count_company, count_followers, count_returns
from beamtree.model.memory import LINK_BYTES, Memory, MemoryWeights
from tests.small import assert_same_bytes, sequences_of


def whole(sequences: Sequences) -> Spans:
    users = np.arange(len(sequences), dtype=np.int32)
    return Spans(users, sequences.offsets[:-1], sequences.offsets[1:])


def as_dictionary(counted: tuple[np.ndarray, np.ndarray, np.ndarray]) -> dict[tuple[int, int], int]:
    offsets, items, counts = counted
    sources = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return {(int(h), int(i)): int(c) for h, i, c in zip(sources, items, counts, strict=True)}


def test_what_followed_is_counted_within_the_window_and_never_across_users_or_onto_itself() -> None:
    sequences = sequences_of([[0, 1, 0, 2], [1, 2]])
    counted = count_followers(sequences.items, whole(sequences), num_items=4, window=2, most=10)
    assert as_dictionary(counted) == {(0, 1): 1, (1, 0): 1, (1, 2): 2, (0, 2): 1}


def test_the_most_frequent_are_kept_and_equal_counts_go_to_the_lower_item() -> None:
    sequences = sequences_of([[0, 3], [0, 3], [0, 2], [0, 1]])
    counted = count_followers(sequences.items, whole(sequences), num_items=4, window=5, most=2)
    assert as_dictionary(counted) == {(0, 1): 1, (0, 3): 2}


def test_company_counts_users_once_and_keeps_the_highest_cosines() -> None:
    sequences = sequences_of([[0, 1, 0, 1], [1, 0], [0, 2], [2, 1], [2], [3, 0]])
    counted, users, _ = count_company(sequences.items, whole(sequences), num_items=5, most=10)
    assert users.tolist() == [4, 3, 3, 1, 0]
    both_ways = {(0, 1): 2, (0, 2): 1, (1, 2): 1, (0, 3): 1}
    assert as_dictionary(counted) == both_ways | {(b, a): times for (a, b), times in both_ways.items()}
    few, *_ = count_company(sequences.items, whole(sequences), num_items=5, most=1)
    # Of item 0: 2 / sqrt(3) with item 1, 1 / sqrt(3) with 2, 1 / sqrt(1) with 3.
    assert as_dictionary(few) == {(0, 1): 2, (1, 0): 2, (2, 1): 1, (3, 0): 1}


def test_a_lower_balance_is_kinder_to_popular_items() -> None:
    """Item 0 is in one span with each of 1 and 2; 0 is in three spans, 1 in four."""
    sequences = sequences_of([[0, 1], [0, 2], [1], [1], [1], [0]])
    for balance, of_popular in ((0.5, 1 / np.sqrt(3 * 4)), (0.0, 1 / 3), (0.3, 1 / (3**0.7 * 4**0.3))):
        company = count_company(sequences.items, whole(sequences), num_items=3, most=10, balance=balance)
        strengths = dict(zip(as_dictionary(company.pairs), company.strengths(balance).tolist(), strict=True))
        assert strengths[0, 1] == pytest.approx(of_popular)
    few, *_ = count_company(sequences.items, whole(sequences), num_items=3, most=1, balance=0.0)
    assert as_dictionary(few) == {(0, 1): 1, (1, 0): 1, (2, 0): 1}, "equal shares go to the lower item"


def test_the_balance_is_stored_and_older_files_have_the_cosine() -> None:
    sequences = sequences_of([[0, 1], [3, 2, 1, 0]])
    memory = Memory.count(sequences, whole(sequences), num_items=4, balance=0.2)
    arrays = memory.weighed(MemoryWeights(company=2.0)).arrays()
    assert Memory.from_arrays(arrays).weights == MemoryWeights(company=2.0, balance=0.2)
    older = {name: array for name, array in arrays.items() if name != "weights.balance"}
    assert Memory.from_arrays(older).weights.balance == 0.5


def test_only_the_latest_items_of_a_long_history_keep_company() -> None:
    sequences = sequences_of([[0, *range(1, COMPANY_ITEMS + 1)]])
    counted, users, _ = count_company(sequences.items, whole(sequences), num_items=COMPANY_ITEMS + 1, most=1000)
    assert users.tolist() == [0] + [1] * COMPANY_ITEMS
    assert counted.offsets[1] == 0


def test_returns_are_counted_at_three_cuts_of_each_span() -> None:
    sequences = sequences_of([[0, 1, 0, 2, 1, 3, 1, 0], [2, 3, 3, 3], []])
    had, again = count_returns(sequences.items, whole(sequences), num_items=5)
    # The cuts are before places 2, 4 and 6 of the first span, and before 1, 2 and 3 of the second.
    assert had.tolist() == [3, 3, 2 + 3, 1 + 2, 0]
    assert again.tolist() == [3, 3, 0, 0 + 2, 0]


def test_an_item_that_returns_counts_more_in_own_repeats_and_a_rare_one_as_usual() -> None:
    staple, treat, rare = 0, 1, 2
    sequences = sequences_of([[staple, treat, 3 + user, staple] for user in range(100)] + [[rare]])
    memory = Memory.count(sequences, whole(sequences), num_items=103)
    assert memory.returns[staple] > 1.0 > memory.returns[treat] > 0.0
    assert memory.returns[rare] == pytest.approx(1.0)
    reasons = memory.weighed(MemoryWeights(transitions=0.0, repeats=1.0)).reasons(np.array([staple, treat]), staple)
    assert reasons[0].strength == pytest.approx(memory.returns[staple] * np.log1p(0.99))


@pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")
@settings(max_examples=60, deadline=None)
@given(
    lists=st.lists(st.lists(st.integers(0, 12), max_size=25), min_size=1, max_size=8),
    window=st.integers(1, 30),
    most=st.integers(1, 15),
    balance=st.sampled_from([0.0, 0.3, 0.5]),
)
def test_kernels_and_numpy_count_the_same(lists: list[list[int]], window: int, most: int, balance: float) -> None:
    sequences = sequences_of(lists)
    in_kernels = count_followers(sequences.items, whole(sequences), num_items=13, window=window, most=most)
    company, *_ = count_company(sequences.items, whole(sequences), num_items=13, most=most, balance=balance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "is_available", lambda: False)
        in_numpy = count_followers(sequences.items, whole(sequences), num_items=13, window=window, most=most)
        company_in_numpy, *_ = count_company(
            sequences.items, whole(sequences), num_items=13, most=most, balance=balance
        )
    for ours, theirs in zip((*in_kernels, *company), (*in_numpy, *company_in_numpy), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def small_memory() -> Memory:
    sequences = sequences_of([[0, 2], [0, 2], [0, 2], [1, 2], [1, 3]])
    return Memory.count(sequences, whole(sequences), num_items=4)


def test_reasons_name_the_items_of_the_history_the_strongest_first() -> None:
    memory = small_memory().weighed(MemoryWeights(transitions=2.0, repeats=1.0, popularity=0.0))
    history = np.array([0, 1], dtype=np.int32)
    older, newer = memory.reasons(history, 2)
    assert (older.item, newer.item) == (0, 1)
    assert older.strength == pytest.approx(2 * 0.8 * np.log(4), rel=1e-3)
    assert newer.strength == pytest.approx(2 * np.log(2), rel=1e-3)
    (own,) = memory.reasons(history, 1)
    assert own.item == 1
    assert own.strength == pytest.approx(memory.returns[1] * np.log(2))
    assert small_memory().reasons(np.array([3], dtype=np.int32), 2) == []


def test_a_memory_survives_its_arrays() -> None:
    memory = small_memory().weighed(MemoryWeights(0.3, 0.2, 0.1, fade=0.6, repeat_fade=0.5))
    again = Memory.from_arrays(memory.arrays())
    assert again.weights == memory.weights
    assert again.gates == ()
    np.testing.assert_array_equal(again.transitions.items, memory.transitions.items)
    with pytest.raises(InputError, match="Fit the model again"):
        Memory.from_arrays({name: array for name, array in memory.arrays().items() if name != "weights.fade"})


@settings(max_examples=40, deadline=None)
@given(
    lists=st.lists(st.lists(st.integers(0, 12), max_size=25), min_size=1, max_size=8),
    num_bytes=st.integers(0, 1500),
)
def test_the_longest_lists_are_cut_until_a_budget_of_bytes_holds_them(lists: list[list[int]], num_bytes: int) -> None:
    sequences = sequences_of(lists)
    whole_memory = Memory.count(sequences, whole(sequences), num_items=13)
    memory = whole_memory.within(num_bytes)
    lengths, before = (
        np.concatenate([np.diff(kind.offsets) for kind in (part.transitions, part.company)])
        for part in (memory, whole_memory)
    )
    longest = lengths.max(initial=0)
    np.testing.assert_array_equal(lengths, np.minimum(before, longest))
    assert lengths.sum() * LINK_BYTES <= num_bytes
    assert longest == before.max(initial=0) or np.minimum(before, longest + 1).sum() * LINK_BYTES > num_bytes
    for item in range(13):
        own = slice(memory.company.offsets[item], memory.company.offsets[item + 1])
        everything = slice(whole_memory.company.offsets[item], whole_memory.company.offsets[item + 1])
        strongest = np.sort(whole_memory.company.strengths[everything])[::-1][:longest]
        np.testing.assert_array_equal(np.sort(memory.company.strengths[own])[::-1], strongest)


def test_what_lies_outside_the_training_spans_is_not_counted() -> None:
    """The second half of the only user is held out: whatever stands there, the memory is the same."""
    shown, held_out = [0, 1, 2], ([3, 0, 1], [0, 1, 2])
    counted = []
    for tail in held_out:
        sequences = sequences_of([shown + tail])
        spans = Spans(np.zeros(1, dtype=np.int32), np.array([0]), np.array([3]))
        counted.append(Memory.count(sequences, spans, num_items=4).arrays())
    assert_same_bytes(*counted)
    assert counted[0]["popularity"].tolist() == pytest.approx([np.log(2)] * 3 + [0.0])
