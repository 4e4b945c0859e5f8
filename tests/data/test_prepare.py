"""What a log decides: each decision on both sides of its threshold, overruled, and said."""

from typing import Any

import polars as pl
import pytest

from beamtree.config import Config
from beamtree.data.interactions import InteractionLog
from beamtree.data.prepare import PreparedLog, explain_seen_items, prepare_log
from beamtree.errors import SettingsError
from tests.small import small_config, two_group_log

DAY = 86_400
START = 1_500_000_000


def log_of(rows: list[tuple[int, int, int]]) -> InteractionLog:
    return InteractionLog(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))


def listened(*, repeats: int) -> InteractionLog:
    """Two users of fifty interactions each, a day apart; so many of each repeat item 0."""
    items = [*range(50 - repeats), *[0] * repeats]
    return log_of([(user, item, START + DAY * day) for user in range(2) for day, item in enumerate(items)])


def baskets(*, file_order: int = 1) -> InteractionLog:
    """Two users with three baskets of ten different items, listed by item, or against it."""
    return log_of(
        [
            (user, 10 * basket + item, START + DAY * basket)
            for user in range(2)
            for basket in range(3)
            for item in range(10)[::file_order]
        ]
    )


def prepared(log: InteractionLog, **sections: dict[str, Any]) -> PreparedLog:
    return prepare_log(log, config=Config.resolve(sections))


@pytest.mark.parametrize(
    ("repeats", "excluded", "said"),
    [
        (
            4,
            True,
            "8.0% of the interactions repeat an item: seen items are not recommended; "
            "retrieval.exclude_seen=false overrules",
        ),
        (
            5,
            False,
            "10.0% of the interactions repeat an item: seen items may be recommended; "
            "retrieval.exclude_seen=true overrules",
        ),
    ],
)
def test_seen_items_are_left_out_where_few_interactions_repeat_one(repeats: int, excluded: bool, said: str) -> None:
    found = prepared(listened(repeats=repeats))
    assert found.config.retrieval.exclude_seen is excluded
    assert said in found.lines()
    again = prepare_log(listened(repeats=repeats), config=found.config)
    assert again.config == found.config
    assert again.lines() == found.lines(), "a decision is the same when it is read from the settings"


def test_only_users_who_are_kept_decide() -> None:
    """Twenty users who did one thing twice decide, unless they are dropped."""
    short = [(100 + user, 3, START + day) for user in range(20) for day in range(2)]
    log = log_of(listened(repeats=4).frame.rows() + short)
    assert prepared(log).config.retrieval.exclude_seen is False
    assert prepared(log, data={"min_interactions": 3}).config.retrieval.exclude_seen is True


def users_of_lengths(*lengths: int) -> InteractionLog:
    return log_of([(user, item, START + item) for user, length in enumerate(lengths) for item in range(length)])


def test_users_with_15_interactions_can_be_held_out_where_there_are_a_hundred() -> None:
    log = users_of_lengths(*[15] * 100, *[3] * 20, 1)
    found = prepared(log)
    assert found.config.data.min_held_out == 15
    assert len(found.dataset.users) == 120
    said = "100 of 120 users have at least 15 interactions: only they can be held out, all are learned from; "
    assert f"{said}data.min_held_out=N overrules" in found.lines()
    again = prepare_log(log, config=found.config)
    assert (again.config, again.lines()) == (found.config, found.lines())


def test_shorter_users_can_be_held_out_where_few_are_long() -> None:
    found = prepared(users_of_lengths(*[15] * 50, *[7] * 60, *[3] * 20))
    assert found.config.data.min_held_out == 7
    assert (
        "fewer than 100 users have 15 interactions, 110 of 130 users have at least 7 interactions: only they can be "
        "held out, all are learned from; data.min_held_out=N overrules" in found.lines()
    )


def test_a_setting_overrules_who_can_be_held_out() -> None:
    found = prepared(users_of_lengths(*[15] * 100, *[3] * 20), data={"min_held_out": 3})
    assert found.config.data.min_held_out == 3
    assert "only users with at least 3 interactions can be held out, as data.min_held_out=3 asks" in found.lines()


@pytest.mark.parametrize("data", [{}, {"min_held_out": 2}, {"holdout": "none", "min_held_out": 99}])
def test_nothing_is_said_where_it_makes_no_difference_who_is_long(data: dict[str, Any]) -> None:
    found = prepared(users_of_lengths(*[16] * 100), data=data)
    assert not [line for line in found.lines() if "held out" in line]


@pytest.mark.parametrize(("repeats", "excluded"), [(4, False), (5, True)])
def test_a_setting_overrules_the_repeats(repeats: int, excluded: bool) -> None:
    found = prepared(listened(repeats=repeats), retrieval={"exclude_seen": excluded})
    assert found.config.retrieval.exclude_seen is excluded
    text = explain_seen_items(found.profile, config=found.config)
    assert text.endswith(f"as retrieval.exclude_seen={str(excluded).lower()} asks")


@pytest.mark.parametrize("file_order", [1, -1])
def test_ties_sorted_by_item_are_shuffled_by_the_seed_of_the_split(file_order: int) -> None:
    log = baskets(file_order=file_order)
    found = prepared(log, data={"split_seed": 7})
    assert found.config.decided.shuffle_ties is True
    assert found.profile.ties_are_sorted, "the profile is that of the file"
    assert (
        "100.0% of the rows share user and time with another and are sorted by item: shuffled by seed 7"
        in found.lines()
    )
    items = found.dataset.sequences.of(0)
    assert [sorted(items[first : first + 10].tolist()) for first in (0, 10, 20)] == [
        list(range(first, first + 10)) for first in (0, 10, 20)
    ]
    falling = [first + item for first in (0, 10, 20) for item in reversed(range(10))]
    assert items.tolist() not in (list(range(30)), falling)


def test_the_fingerprint_covers_the_shuffle_and_not_the_order_of_the_file() -> None:
    first = prepared(baskets(), data={"split_seed": 0})
    same = prepared(baskets(file_order=-1), data={"split_seed": 0})
    other = prepared(baskets(), data={"split_seed": 1})
    kept = prepared(baskets(), decided={"shuffle_ties": False})
    assert first.dataset.fingerprint == same.dataset.fingerprint
    assert len({found.dataset.fingerprint for found in (first, other, kept)}) == 3
    assert prepare_log(baskets(), config=first.config).dataset.fingerprint == first.dataset.fingerprint


def test_the_seed_of_the_training_shuffles_where_the_split_has_none() -> None:
    by_training = prepared(baskets(), training={"seed": 5})
    by_split = prepared(baskets(), data={"split_seed": 5})
    assert by_training.dataset.fingerprint == by_split.dataset.fingerprint


def test_ties_in_another_order_stay_as_the_file_has_them() -> None:
    order = [3, 7, 1, 9, 0, 8, 2, 6, 4, 5]
    log = log_of([(user, item, START) for user in range(4) for item in [*order, *[10 + item for item in order]]])
    found = prepared(log)
    assert found.config.decided.shuffle_ties is False
    assert found.dataset.sequences.of(3).tolist() == [*order, *[10 + item for item in order]]
    assert (
        "100.0% of the rows share user and time with another and are in no order of the items: left in the order of "
        "the file" in found.lines()
    )
    asked = prepared(log, decided={"shuffle_ties": True})
    assert sorted(asked.dataset.sequences.of(3).tolist()) == list(range(20))
    assert asked.dataset.fingerprint != found.dataset.fingerprint
    assert asked.lines()[-2].endswith("shuffled by seed 0, as was decided before")


def test_an_earlier_decision_and_the_published_protocol_leave_sorted_ties() -> None:
    asked = prepared(baskets(), decided={"shuffle_ties": False})
    assert asked.dataset.sequences.of(0).tolist() == list(range(30))
    assert asked.lines()[-2].endswith(
        "sorted by item, which gives the next item away: left in the order of the file, as was decided before"
    )
    paper = prepared(baskets(), data={"protocol": "paper"})
    assert paper.config.decided.shuffle_ties is False
    assert paper.dataset.fingerprint == asked.dataset.fingerprint
    assert paper.lines()[-2].endswith("left in the order of the file, as is published")


def test_a_log_without_ties_says_nothing_of_them() -> None:
    assert not [line for line in prepared(listened(repeats=0)).lines() if "share user and time" in line]


def test_the_encoder_reads_what_nearly_everybody_has_within_reason() -> None:
    assert prepared(baskets()).config.encoder_history == 30
    told = prepared(baskets(), model={"history_length": 7})
    assert told.config.encoder_history == 7
    assert told.lines()[-1].endswith("as model.history_length=7 asks")
    without = prepared(baskets(), model={"parts": ["memory"]})
    assert "encoder" not in without.lines()[-1]


def test_what_the_columns_of_the_item_table_are_is_said() -> None:
    log = two_group_log()
    ids = log.frame["item_id"].unique().sort()
    items = pl.DataFrame(
        {
            "item_id": ids,
            "genres": ["drama|crime", "drama"] * (len(ids) // 2),
            "price": [float(place) for place in range(len(ids))],
            "text": [[0.5, float(place)] for place in range(len(ids))],
        }
    )
    said = prepare_log(log, config=small_config(), items=items).lines()
    assert said[-1] == (
        "features of the items: category (1 values), genres (2 values), price (number), text (vector of 2)"
    )
    declared = small_config(log={"features": {"items.price": "category", "items.text": "ignore"}})
    assert "price (0 values)" in prepare_log(log, config=declared, items=items).lines()[-1]
    wrong = small_config(log={"features": {"items.colour": "category"}})
    with pytest.raises(SettingsError, match="no column 'colour' to take features from"):
        prepare_log(log, config=wrong, items=items)
