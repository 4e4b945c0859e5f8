import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.interactions import read_interactions
from beamtree.data.sequences import Sequences
from beamtree.data.split import (
    Fold,
    HeldOut,
    Spans,
    Split,
    split_by_time,
    split_leave_last_out,
    split_none,
    split_users,
)
from beamtree.errors import DataError, SettingsError


def sequences_of_lengths(*lengths: int) -> Sequences:
    total = sum(lengths)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    return Sequences(items=np.arange(total, dtype=np.int32), offsets=offsets)


def spans_of(split: Split) -> dict[int, tuple[int, int]]:
    return {
        int(user): (int(start), int(end))
        for user, start, end in zip(split.train.user, split.train.start, split.train.end, strict=True)
    }


lengths_strategy = st.lists(st.integers(1, 40), min_size=4, max_size=60)


@given(lengths_strategy, st.integers(0, 5), st.sampled_from(["clean", "paper"]))
def test_every_user_is_in_one_group_and_no_label_is_trained_on(lengths: list[int], seed: int, protocol: str) -> None:
    sequences = sequences_of_lengths(*lengths)
    split = split_users(sequences, seed=seed, protocol=protocol)  # type: ignore[arg-type]
    validation, test = set(split.validation.user.tolist()), set(split.test.user.tolist())
    assert not validation & test
    trained = spans_of(split)
    assert list(trained) == list(range(len(lengths)))
    for held_out in (split.validation, split.test):
        for row, user in enumerate(held_out.user.tolist()):
            assert trained[user] == (held_out.history_start[row], held_out.history_end[row])
            assert held_out.history_start[row] == sequences.offsets[user]
            assert held_out.history_end[row] == held_out.label_start[row] < held_out.label_end[row]
            assert held_out.label_end[row] == sequences.offsets[user + 1]
    whole = [user for user in trained if trained[user] == (sequences.offsets[user], sequences.offsets[user + 1])]
    assert len(whole) >= len(lengths) - 2 * max(1, round(len(lengths) * 0.1))


@given(lengths_strategy, st.integers(0, 5))
def test_the_clean_history_is_the_first_half(lengths: list[int], seed: int) -> None:
    split = split_users(sequences_of_lengths(*lengths), seed=seed)
    assert split.first_target == 1
    for held_out in (split.validation, split.test):
        for row, user in enumerate(held_out.user.tolist()):
            assert held_out.history_end[row] - held_out.history_start[row] == lengths[user] // 2 >= 1


def test_the_paper_keeps_one_item_more_and_skips_short_histories() -> None:
    sequences = sequences_of_lengths(*[27] * 10, *[28] * 10, *[29] * 10)
    split = split_users(sequences, seed=3, validation_share=0.3, test_share=0.3, protocol="paper")
    assert split.first_target == 14
    kept = np.concatenate([split.validation.user, split.test.user])
    assert 0 < len(kept) < 18
    assert (kept >= 10).all()
    history = split.test.history_end - split.test.history_start
    assert history.tolist() == [15] * len(split.test)
    labels = split.test.label_end - split.test.label_start
    assert labels.tolist() == [13 if user < 20 else 14 for user in split.test.user]
    assert "skipped as too short" in split.description
    trained = spans_of(split)
    shortened = [user for user in range(10) if trained[user][1] - trained[user][0] == 14]
    assert len(shortened) == 18 - len(kept)


def test_shares_set_the_sizes_of_the_groups() -> None:
    split = split_users(sequences_of_lengths(*[20] * 200), seed=0, validation_share=0.05, test_share=0.2)
    assert (len(split.validation), len(split.test)) == (10, 40)
    nothing = split_users(sequences_of_lengths(*[20] * 10), seed=0, validation_share=0, test_share=0.1)
    assert (len(nothing.validation), len(nothing.test)) == (0, 1)
    tiny = split_users(sequences_of_lengths(20, 20, 20), seed=0)
    assert (len(tiny.validation), len(tiny.test)) == (1, 1)


def test_the_seed_alone_decides_who_is_held_out() -> None:
    sequences = sequences_of_lengths(*[20] * 100)
    first, again, other = (split_users(sequences, seed=seed).test.user.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_row_order_in_the_log_does_not_change_a_split() -> None:
    frame = pl.DataFrame({"user_id": np.repeat(np.arange(30), 4), "item_id": np.tile(np.arange(4), 30)})
    frame = frame.with_columns(timestamp=pl.int_range(pl.len()))
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=0)
    splits = []
    for table in (frame, shuffled):
        dataset = prepare_dataset(read_interactions(table), min_interactions=1)
        split = split_users(dataset.sequences, seed=5)
        splits.append((dataset.users.decode(split.test.user).to_list(), split.test.label_start.tolist()))
    assert splits[0] == splits[1]


def test_over_all_folds_each_long_user_is_tested_once_and_validated_on_once() -> None:
    sequences = sequences_of_lengths(2, *[6] * 10, 8)
    splits = [split_users(sequences, seed=3, min_held_out=5, fold=Fold(number, 4)) for number in range(4)]
    for group in ("test", "validation"):
        users = np.concatenate([getattr(split, group).user for split in splits])
        assert sorted(users.tolist()) == list(range(1, 12)), "all but the short one"
    for split in splits:
        held_out = {*split.test.user.tolist(), *split.validation.user.tolist()}
        assert len(held_out) == len(split.test) + len(split.validation)
        halved = {user for user, (start, end) in spans_of(split).items() if end - start < sequences.lengths[user]}
        assert halved == held_out, "everybody else is learned from whole"
    assert len({split.description for split in splits}) == 4
    for folds, error in ((12, DataError), (1, SettingsError)):
        with pytest.raises(error, match="folds"):
            split_users(sequences, seed=3, min_held_out=5, fold=Fold(0, folds))


@pytest.mark.parametrize(("validation_share", "test_share"), [(0.5, 0.5), (-0.1, 0.1), (0.1, 1.0)])
def test_impossible_shares_are_refused(validation_share: float, test_share: float) -> None:
    with pytest.raises(SettingsError, match="together below 1"):
        split_users(sequences_of_lengths(5, 5), seed=0, validation_share=validation_share, test_share=test_share)


def test_too_few_users_and_unknown_protocols_are_refused() -> None:
    with pytest.raises(DataError, match="leaves nobody to train on"):
        split_users(sequences_of_lengths(20, 20), seed=0)
    with pytest.raises(SettingsError, match="'strict'"):
        split_users(sequences_of_lengths(20, 20, 20), seed=0, protocol="strict")  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 14), max_size=60), st.integers(0, 5), st.sampled_from(["clean", "paper"]))
def test_short_users_are_learned_from_whole_and_change_nobody_elses_place(
    short: list[int], seed: int, protocol: str
) -> None:
    long = [15, 30, 17, 40, 28, 29, 33, 15]
    alone = split_users(sequences_of_lengths(*long), seed=seed, protocol=protocol)  # type: ignore[arg-type]
    mixed = sequences_of_lengths(*short, *long)
    split = split_users(mixed, seed=seed, protocol=protocol, min_held_out=15)  # type: ignore[arg-type]
    assert split.validation.user.tolist() == (alone.validation.user + len(short)).tolist()
    assert split.test.user.tolist() == (alone.test.user + len(short)).tolist()
    trained = spans_of(split)
    assert [end - start for start, end in trained.values()][len(short) :] == (
        alone.train.end - alone.train.start
    ).tolist()
    assert all(trained[user] == (mixed.offsets[user], mixed.offsets[user + 1]) for user in range(len(short)))


def test_shares_are_of_the_users_who_are_long_enough() -> None:
    split = split_users(sequences_of_lengths(*[3] * 300, *[20] * 50), seed=0, test_share=0.2, min_held_out=20)
    assert (len(split.validation), len(split.test)) == (5, 10)
    assert "350 users are trained on; of 50 with at least 20 interactions 5 are held out" in split.description


def test_two_long_users_are_enough_where_others_are_learned_from() -> None:
    split = split_users(sequences_of_lengths(20, 3, 20), seed=0, min_held_out=20)
    assert sorted([*split.validation.user.tolist(), *split.test.user.tolist()]) == [0, 2]


def test_too_few_long_users_are_told_what_to_lower() -> None:
    sequences = sequences_of_lengths(*[3] * 30, 20)
    with pytest.raises(
        DataError, match=r"1 \+ 1 users needs .* 20 interactions, but 1 of 31 .* Lower data\.min_held_out"
    ):
        split_users(sequences, seed=0, min_held_out=20)
    nobody = r"needs 21 interactions, and the longest history of 31 users has 20\. Lower data\.min_held_out"
    with pytest.raises(DataError, match=nobody):
        split_users(sequences, seed=0, min_held_out=21)
    with pytest.raises(DataError, match=nobody):
        split_leave_last_out(sequences, seed=0, min_held_out=21)
    with pytest.raises(DataError, match=r"needs 5 interactions, and the longest history of 4 users has 4\."):
        split_by_time(timed_dataset(), seed=0, min_held_out=5)


def test_the_last_items_of_short_users_are_learned_from() -> None:
    split = split_leave_last_out(sequences_of_lengths(4, 3, 5), seed=0, min_held_out=4)
    assert spans_of(split) == {0: (0, 2), 1: (4, 7), 2: (7, 10)}
    assert split.test.user.tolist() == split.validation.user.tolist() == [0, 2]
    assert "3 users are trained on; of 2 with at least 4 interactions 2 are evaluated" in split.description


def test_by_time_short_users_are_learned_from_before_the_cut_and_not_evaluated() -> None:
    dataset = timed_dataset()
    everybody = split_by_time(dataset, seed=0, validation_share=0.3, test_share=0.2)
    split = split_by_time(dataset, seed=0, validation_share=0.3, test_share=0.2, min_held_out=4)
    assert spans_of(split) == spans_of(everybody)
    assert split.validation.user.tolist() == split.test.user.tolist() == [0]
    assert "3 users are trained on; of 1 with at least 4 interactions 1 are held out" in split.description


def test_leaving_the_last_out() -> None:
    split = split_leave_last_out(sequences_of_lengths(4, 2, 3), seed=0)
    assert spans_of(split) == {0: (0, 2), 1: (4, 6), 2: (6, 7)}
    sequences = sequences_of_lengths(4, 2, 3)
    assert split.validation.labels(sequences, distinct=True)[0].tolist() == [2, 7]
    assert split.test.labels(sequences, distinct=True)[0].tolist() == [3, 8]
    assert split.test.histories(sequences, 4).tolist() == [[-1, 0, 1, 2], [-1, -1, 6, 7]]


def timed_dataset() -> Dataset:
    rows = {
        1: [(10, 1), (11, 2), (12, 6), (13, 9)],
        2: [(10, 3), (11, 4)],
        3: [(12, 8), (13, 10)],
        4: [(10, 5), (12, 7)],
    }
    flat = [(user, item, time) for user, events in rows.items() for item, time in events]
    frame = pl.DataFrame(flat, schema=["user_id", "item_id", "timestamp"], orient="row")
    return prepare_dataset(read_interactions(frame), min_interactions=1)


def test_a_split_by_time_cuts_the_whole_log_at_two_moments() -> None:
    dataset = timed_dataset()
    split = split_by_time(dataset, seed=0, validation_share=0.3, test_share=0.2)
    assert "train before 6, validation from there to 9" in split.description
    assert spans_of(split) == {0: (0, 2), 1: (4, 6), 3: (8, 9)}
    assert split.validation.user.tolist() == [0, 3]
    assert split.validation.labels(dataset.sequences, distinct=True)[0].tolist() == [2, 2]
    assert split.test.user.tolist() == [0, 2]
    assert split.test.labels(dataset.sequences, distinct=True)[0].tolist() == [3, 3]
    assert split.test.histories(dataset.sequences, 3).tolist() == [[0, 1, 2], [-1, -1, 2]]


def test_a_share_of_zero_leaves_a_group_empty() -> None:
    dataset = timed_dataset()
    split = split_by_time(dataset, seed=0, validation_share=0, test_share=0.2)
    assert len(split.validation) == 0
    assert split.test.user.tolist() == [0, 2]
    assert spans_of(split) == {0: (0, 3), 1: (4, 6), 2: (6, 7), 3: (8, 10)}
    split = split_by_time(dataset, seed=0, validation_share=0.2, test_share=0)
    assert len(split.test) == 0
    assert split.validation.user.tolist() == [0, 2]


def test_a_split_by_time_needs_times_that_can_be_cut() -> None:
    dataset = timed_dataset()
    without = Dataset(dataset.users, dataset.items, dataset.sequences, dataset.item_table)
    with pytest.raises(DataError, match="needs timestamps"):
        split_by_time(without, seed=0)
    same = np.zeros(len(dataset.sequences.items), dtype=np.int64)
    still = Dataset(dataset.users, dataset.items, dataset.sequences, dataset.item_table, same)
    with pytest.raises(DataError, match="too few distinct moments"):
        split_by_time(still, seed=0)


def test_nothing_held_out() -> None:
    split = split_none(sequences_of_lengths(3, 1))
    assert spans_of(split) == {0: (0, 3), 1: (3, 4)}
    assert len(split.validation) == len(split.test) == 0
    assert split.validation.histories(sequences_of_lengths(3, 1), 5).shape == (0, 5)
    assert split.test.labels(sequences_of_lengths(3, 1), distinct=True)[1].tolist() == [0]


def repeating() -> tuple[Sequences, HeldOut]:
    items = np.array([5, 5, 3, 5, 3, 8, 2, 2, 2, 9], dtype=np.int32)
    sequences = Sequences(items, np.array([0, 6, 10]))
    held_out = HeldOut(
        np.array([0, 1], np.int32), np.array([0, 6]), np.array([1, 7]), np.array([1, 7]), np.array([6, 10])
    )
    return sequences, held_out


def test_labels_keep_repeats_or_count_each_item_once() -> None:
    sequences, held_out = repeating()
    flat, offsets = held_out.labels(sequences, distinct=False)
    assert (flat.tolist(), offsets.tolist()) == ([5, 3, 5, 3, 8, 2, 2, 9], [0, 5, 8])
    flat, offsets = held_out.labels(sequences, distinct=True)
    assert (flat.tolist(), offsets.tolist()) == ([5, 3, 8, 2, 9], [0, 3, 5])
    assert flat.dtype == np.int32
    assert offsets.dtype == np.int64


def test_what_was_seen_is_the_whole_history() -> None:
    sequences, held_out = repeating()
    flat, offsets = held_out.seen(sequences)
    assert (flat.tolist(), offsets.tolist()) == ([5, 2], [0, 1, 2])


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=8), min_size=1, max_size=5))
def test_distinct_labels_agree_with_plain_python(labels: list[list[int]]) -> None:
    flat = np.array([item for row in labels for item in row], dtype=np.int32)
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in labels], dtype=np.int64)))
    users = np.arange(len(labels), dtype=np.int32)
    held_out = HeldOut(users, offsets[:-1], offsets[:-1], offsets[:-1], offsets[1:])
    found, bounds = held_out.labels(Sequences(flat, offsets), distinct=True)
    assert [found[bounds[row] : bounds[row + 1]].tolist() for row in users] == [
        list(dict.fromkeys(row)) for row in labels
    ]


def test_rows_can_be_taken_by_index_mask_or_slice() -> None:
    _, held_out = repeating()
    assert held_out.take(np.array([1, 0])).label_end.tolist() == [10, 6]
    assert held_out.take(np.array([False, True])).user.tolist() == [1]
    assert held_out.take(slice(0, 1)).history_end.tolist() == [1]


def test_spans_that_make_no_sense_are_refused() -> None:
    one = np.array([1])
    with pytest.raises(DataError, match="start must not exceed end, but does in row 0"):
        Spans(np.array([0], np.int32), np.array([2]), one)
    with pytest.raises(DataError, match=r"Spans\.end is int64 of shape \(1,\)"):
        Spans(np.array([0], np.int32), one, np.array([1, 2]))
    with pytest.raises(DataError, match=r"HeldOut\.user is int32"):
        HeldOut(one, one, one, one, one)
    empty = split_none(sequences_of_lengths(2)).test
    with pytest.raises(SettingsError, match="1 or more, got 0"):
        Split(Spans(np.array([0], np.int32), one, one), empty, empty, 0, "nothing")
