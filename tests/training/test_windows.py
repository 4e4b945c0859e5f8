"""Windows: what a sequence encoder learns from."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from beamtree.data.split import split_none
from beamtree.training.horizon import TargetHorizon
from beamtree.training.windows import TrainingWindows, WindowBatch
from tests.small import sequences_of


def test_windows_count_what_is_next_in_line() -> None:
    sequences = sequences_of([[0, 1, 2, 1, 1, 1, 2], [2, 1]])
    windows = TrainingWindows.cut(sequences, split_none(sequences), length=4)
    np.testing.assert_array_equal(windows.counts(4), [0, 5, 2, 0])


def test_windows_make_every_interaction_after_the_first_a_target_once() -> None:
    sequences = sequences_of([[0, 1, 2, 3, 4, 5, 0], [4, 5]])
    windows = TrainingWindows.cut(sequences, split_none(sequences), length=4)
    inputs, wanted, lengths, *_ = windows.batch(np.arange(len(windows)))
    assert lengths.tolist() == windows.lengths[[2, 1, 0]].tolist() == [1, 2, 4], "the shortest first"
    assert inputs.tolist() == [4, 0, 1, 2, 3, 4, 5]
    assert wanted.tolist() == [[5], [1], [2], [3], [4], [5], [0]]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 4))
def test_a_divided_batch_has_every_window_once(lengths: list[int], parts: int) -> None:
    inputs, targets = np.arange(sum(lengths), dtype=np.int32), np.arange(sum(lengths), dtype=np.int32)[:, None]
    whole = WindowBatch(inputs, targets, np.array(lengths))
    windows = {tuple(window) for window in np.split(inputs, np.cumsum(lengths)[:-1])}
    found = whole.divided(parts)
    assert len(found) == min(parts, len(lengths))
    sizes = [len(part.lengths) for part in found]
    assert max(sizes) - min(sizes) <= 1
    divided = [
        tuple(window) for part in found for window in np.split(part.inputs, np.cumsum(part.lengths)[:-1].astype(int))
    ]
    assert len(divided) == len(lengths)
    assert set(divided) == windows
    assert all((part.targets[:, 0] == part.inputs).all() for part in found)


def test_targets_of_windows_come_from_the_next_interactions_of_the_same_user() -> None:
    sequences = sequences_of([list(range(10)), list(range(20, 24))])
    windows = TrainingWindows.cut(sequences, split_none(sequences), length=4, horizon=TargetHorizon(3, seed=1))
    seen: dict[int, set[int]] = {}
    for epoch in range(60):
        inputs, targets, *_ = windows.batch(np.arange(len(windows)), epoch=epoch)
        for item, target in zip(inputs.flat, targets.flat, strict=True):
            seen.setdefault(int(item), set()).add(int(target))
    last = {item: 9 if item < 20 else 23 for item in seen}
    assert seen == {item: set(range(item + 1, min(item + 3, last[item]) + 1)) for item in seen}
    assert len(seen) == 9 + 3


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 7), st.integers(1, 15))
def test_windows_are_cut_from_the_end_of_each_span(lengths: list[int], length: int, first_target: int) -> None:
    """One window after another, as long as a target is left; spans without a target give none."""
    sequences = sequences_of([list(range(size)) for size in lengths])
    split = replace(split_none(sequences), first_target=first_target)
    expected = [
        (max(start, end - length - 1), end, span_end)
        for start, span_end in zip(sequences.offsets[:-1].tolist(), sequences.offsets[1:].tolist(), strict=True)
        for end in range(span_end, start + first_target, -length)
    ]
    windows = TrainingWindows.cut(sequences, split, length=length)
    found = zip(windows.first.tolist(), windows.end.tolist(), windows.span_end.tolist(), strict=True)
    assert list(found) == expected
    assert {array.dtype for array in (windows.first, windows.end, windows.span_end)} == {np.dtype(np.int64)}
