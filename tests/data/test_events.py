"""Event types: what rows count, which may be targets, and what is said of types that nobody weighed."""

import polars as pl
import pytest

from beamtree.config import Config
from beamtree.data.dataset import prepare_dataset
from beamtree.data.events import EventTypes
from beamtree.data.interactions import InteractionLog, read_interactions
from beamtree.data.split import split_leave_last_out, split_users
from beamtree.data.ties import shuffle_within
from beamtree.errors import DataError, SettingsError

SHOP = pl.DataFrame(
    [
        ("ann", "hat", 1, "view"),
        ("ann", "hat", 2, "buy"),
        ("ann", "shoe", 3, "impression"),
        ("bob", "shoe", 4, "view"),
        ("bob", "hat", 5, "cart"),
    ],
    schema=["user_id", "item_id", "timestamp", "event_type"],
    orient="row",
)
WEIGHTS = {"view": 1, "cart": 2, "buy": 5, "impression": 0}


def test_rows_count_what_their_event_type_weighs_and_rows_of_no_weight_are_left_out() -> None:
    log = read_interactions(SHOP, event_weights=WEIGHTS)
    assert log.frame["weight"].to_list() == [1.0, 5.0, 1.0, 2.0]
    assert log.frame["timestamp"].to_list() == [1, 2, 4, 5]
    assert log.report.rows_filtered == 1
    assert log.report.lines()[1:] == [
        "1 row left out by the filters: event_type is not impression",
        "events weighed: view 1, cart 2, buy 5",
    ]


def test_a_type_that_nobody_weighed_is_named_with_all_that_the_log_has() -> None:
    with pytest.raises(
        DataError, match=r"says nothing of 'cart'. The log has 'view' \(2 rows\), 'buy' \(1 rows\), 'ca"
    ):
        read_interactions(SHOP, event_weights={"view": 1, "buy": 5, "impression": 0})


def test_target_types_alone_weigh_one_and_all_others_are_history() -> None:
    log = read_interactions(SHOP, target_events=["buy", "cart"])
    assert log.frame["weight"].to_list() == [0.0, 1.0, 0.0, 0.0, 1.0]
    with pytest.raises(DataError, match=r"no row is of a type in target_events \('purchase'\). The log has 'view'"):
        read_interactions(SHOP, target_events=["purchase"])


def test_equal_weights_leave_the_log_as_it_is() -> None:
    plain, weighed = read_interactions(SHOP), read_interactions(SHOP, event_weights=dict.fromkeys(WEIGHTS, 1))
    assert weighed.frame.equals(plain.frame)
    assert prepare_dataset(weighed).fingerprint == prepare_dataset(plain).fingerprint


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"event_weights": {"view": -1}}, "at least 0, got 'view': -1"),
        ({"event_weights": {"view": 1}, "target_events": ["buy"]}, "target_events has 'buy', but event_weights gives"),
        ({"target_events": "buy"}, r"is a list of event types, got 'buy'. Write \['buy'\]"),
    ],
)
def test_weights_that_make_no_sense_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_interactions(SHOP, **given)  # type: ignore[arg-type]


def test_settings_name_all_that_is_wrong_with_weights_at_once() -> None:
    with pytest.raises(SettingsError, match=r"(?s)2 settings.*event_weights.buy: .*-2.*half_life_days: .*got 0"):
        Config.resolve({"log": {"event_weights": {"buy": -2}, "half_life_days": 0}})
    with pytest.raises(SettingsError, match=r"'cart', which has no weight above 0 in log.event_weights"):
        Config.resolve({"log": {"event_weights": {"buy": 2}, "target_events": ["cart"]}})
    with pytest.raises(SettingsError, match=r"log.event_weights are all 0"):
        Config.resolve({"log": {"event_weights": {"buy": 0}}})


def test_a_missing_type_is_a_bad_row_and_a_missing_column_is_named_with_a_likely_one() -> None:
    with pytest.raises(DataError, match="row 1, column 'event_type': event_type is missing"):
        read_interactions(
            SHOP.with_columns(event_type=pl.Series([" ", "buy", "buy", "buy", "buy"])), target_events=["buy"]
        )
    renamed = SHOP.rename({"event_type": "Action"})
    with pytest.raises(DataError, match=r"no column 'event_type'.*columns=\{'event_type': 'Action'\}"):
        read_interactions(renamed, target_events=["buy"])
    mapped = read_interactions(renamed, target_events=["buy"], columns={"event_type": "Action"})
    assert mapped.frame["weight"].sum() == 1.0


def test_types_may_be_numbers_and_two_events_of_one_moment_are_two_rows() -> None:
    table = pl.DataFrame({"user_id": [1, 1, 1], "item_id": [7, 7, 7], "timestamp": [3, 3, 3], "event_type": [1, 4, 4]})
    log = read_interactions(table, event_weights={"1": 1, "4": 3})
    assert log.frame["weight"].to_list() == [1.0, 3.0], "the second purchase of the same moment is a repeat"


def test_weights_stay_with_their_rows_whatever_is_sorted() -> None:
    rows = [("u", "b", 2, 5.0), ("v", "a", 1, 2.0), ("u", "a", 2, 4.0), ("u", "c", 1, 3.0)]
    schema = {"user_id": pl.String, "item_id": pl.String, "timestamp": pl.Int64, "weight": pl.Float32}
    log = InteractionLog(pl.DataFrame(rows, schema=schema, orient="row"))
    dataset = prepare_dataset(log, min_interactions=1)
    assert dataset.sequences.items.tolist() == [2, 1, 0, 0]
    assert dataset.sequences.weights is not None
    assert dataset.sequences.weights.tolist() == [3.0, 5.0, 4.0, 2.0]
    shuffled = shuffle_within(log.frame, keys=("user_id", "timestamp"), seed=1)
    assert sorted(shuffled.rows()) == sorted(rows)


def test_a_log_refuses_weights_below_zero() -> None:
    frame = pl.DataFrame({"user_id": [1], "item_id": [2], "timestamp": [3], "weight": [-1.0]})
    with pytest.raises(DataError, match="finite and at least 0"):
        InteractionLog(frame.with_columns(pl.col("weight").cast(pl.Float32)))


def _visits(*users: str) -> InteractionLog:
    """One user for each text, a row for each letter: v is a view, B a purchase; items are numbered by place."""
    rows = [
        (user, place, place, "buy" if letter == "B" else "view")
        for user, letters in enumerate(users)
        for place, letter in enumerate(letters)
    ]
    table = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "event_type"], orient="row")
    return read_interactions(table, target_events=["buy"])


def test_only_users_with_a_target_to_foresee_are_held_out_and_labels_are_targets() -> None:
    sequences = prepare_dataset(_visits("vvvvvB", "BBBvvv", "vvvBvB", "vvvvvv")).sequences
    split = split_users(sequences, seed=0, validation_share=0.25, test_share=0.25)
    assert sorted([*split.validation.user, *split.test.user]) == [0, 2]
    labels = {
        int(user): part.labels(sequences, distinct=True)[0].tolist()
        for part in (split.validation, split.test)
        for user in part.user
    }
    assert labels == {0: [5], 2: [3, 5]}


def test_leaving_the_last_out_leaves_the_last_two_targets_out() -> None:
    sequences = prepare_dataset(_visits("vBvBvBv", "vvvvvvB", "BvB")).sequences
    split = split_leave_last_out(sequences, seed=0)
    assert split.test.user.tolist() == [0], "the second has one target, the third no history before its first"
    assert split.test.labels(sequences, distinct=True)[0].tolist() == [5]
    assert split.validation.labels(sequences, distinct=True)[0].tolist() == [3]
    assert split.train.end.tolist() == [3, 14, 17]


def test_what_a_single_event_counts() -> None:
    """None is left out of the log; 0 is no target and stays in the history."""
    types = EventTypes.of(WEIGHTS, None)
    assert types is not None
    asked = (None, "buy", "impression", "unheard-of")
    assert [types.weight_of(name) for name in asked] == [1.0, 5.0, None, None]
    assert [types.is_known(name) for name in ("buy", "impression", "unheard-of")] == [True, True, False]
    aimed = EventTypes.of(None, ["buy"])
    assert aimed is not None
    assert [aimed.weight_of(name) for name in asked] == [1.0, 1.0, 0.0, 0.0]
    assert aimed.is_known("unheard-of")
