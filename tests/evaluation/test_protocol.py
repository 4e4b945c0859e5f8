import numpy as np
import polars as pl
import pytest

from beamtree.config import Config
from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.interactions import InteractionLog
from beamtree.data.requests import Requests
from beamtree.data.split import HeldOut, split_by_time, split_leave_last_out, split_none, split_users
from beamtree.errors import InputError, SettingsError
from beamtree.evaluation.protocol import checked_cutoffs, evaluate, split_dataset
from beamtree.retrieval.result import SearchResult
from tests.small import small_config


def dataset_of(lists: list[list[int]]) -> Dataset:
    """Item i is called 100 + i, user u is u, and the places in a list are the times."""
    rows = [(user, 100 + item, time) for user, items in enumerate(lists) for time, item in enumerate(items)]
    log = InteractionLog(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))
    return prepare_dataset(log, min_interactions=1)


def held_out(*spans: tuple[int, int, int]) -> HeldOut:
    """(start, middle, end) of each user: history before the middle, labels after it."""
    start, middle, end = np.array(spans, dtype=np.int64).T.copy()
    return HeldOut(np.arange(len(spans), dtype=np.int32), start, middle, middle, end)


# One user saw 0 1 2 and goes on to 3, 3, 0, 4; the other saw 5 and goes on to 1.
DATASET = dataset_of([[0, 1, 2, 3, 3, 0, 4], [5, 1]])
USERS = held_out((0, 3, 7), (7, 8, 9))


class Listed:
    """A system that always says the same, and remembers what it was asked."""

    def __init__(self, lists: list[list[int]]) -> None:
        self.lists = lists
        self.asked: list[tuple[Requests, int]] = []

    def search(self, requests: Requests, *, k: int) -> SearchResult:
        self.asked.append((requests, k))
        items = np.array(self.lists, dtype=np.int32)
        return SearchResult(items, np.zeros(items.shape, dtype=np.float32))


def config_with(*, protocol: str = "clean", exclude_seen: bool = True) -> Config:
    return small_config(data={"protocol": protocol}, retrieval={"exclude_seen": exclude_seen})


def test_the_clean_protocol_counts_distinct_labels() -> None:
    """Labels {3, 0, 4} and {1}. Hits at 2: {3} of [3, 5] and {1} of [1, 2]; at 3: {3, 4} and {1}."""
    system = Listed([[3, 5, 4], [1, 2, 3]])
    metrics = evaluate(system, DATASET, USERS, config=config_with(exclude_seen=False), cutoffs=(2, 3))
    assert metrics["recall@2"] == pytest.approx((1 / 3 + 1) / 2)
    assert metrics["precision@2"] == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert metrics["recall@3"] == pytest.approx((2 / 3 + 1) / 2)
    assert metrics["coverage@3"] == pytest.approx(5 / 6), "items 1 2 3 4 5 of six"


def test_the_protocol_of_the_paper_counts_repeated_labels_each_time() -> None:
    """Labels [3, 3, 0, 4] and [1]: the same hits out of one more."""
    system = Listed([[3, 5, 4], [1, 2, 3]])
    metrics = evaluate(system, DATASET, USERS, config=config_with(protocol="paper"), cutoffs=(2, 3))
    assert metrics["recall@2"] == pytest.approx((1 / 4 + 1) / 2)
    assert metrics["recall@3"] == pytest.approx((2 / 4 + 1) / 2)


@pytest.mark.parametrize(
    ("protocol", "exclude_seen", "excluded"),
    [("clean", True, [[0, 1, 2], [5]]), ("clean", False, None), ("paper", True, None), ("paper", False, None)],
)
def test_systems_are_asked_for_the_largest_cutoff_without_what_was_seen(
    protocol: str, exclude_seen: bool, excluded: list[list[int]] | None
) -> None:
    system = Listed([[3, 5, 4], [1, 2, 3]])
    evaluate(system, DATASET, USERS, config=config_with(protocol=protocol, exclude_seen=exclude_seen), cutoffs=(3, 2))
    ((requests, k),) = system.asked
    assert k == 3
    assert [requests.histories.row(user).tolist() for user in range(2)] == [[0, 1, 2], [5]]
    assert requests.users is not None
    assert requests.users.tolist() == [0, 1]
    assert requests.times is not None
    assert requests.times.tolist() == [2, 0], "of the last item of the history"
    if excluded is None:
        assert requests.excluded is None
    else:
        assert requests.excluded is not None
        assert [requests.excluded.of(user).tolist() for user in range(2)] == excluded


@pytest.mark.parametrize("holdout", ["users", "last", "time", "none"])
def test_settings_choose_the_split(holdout: str) -> None:
    generator = np.random.default_rng(0)
    dataset = dataset_of([generator.integers(0, 9, size=size).tolist() for size in [12] * 20 + [11] * 20])
    data = {"holdout": holdout, "held_out_shares": (0.2, 0.3), "min_held_out": 12}
    config = small_config(data=data, training={"seed": 5})
    split = split_dataset(dataset, config=config)
    shares = {"seed": 5, "validation_share": 0.2, "test_share": 0.3, "min_held_out": 12}
    expected = {
        "users": lambda: split_users(dataset.sequences, **shares),  # type: ignore[arg-type]
        "last": lambda: split_leave_last_out(dataset.sequences, seed=5, min_held_out=12),
        "time": lambda: split_by_time(dataset, **shares),  # type: ignore[arg-type]
        "none": lambda: split_none(dataset.sequences),
    }[holdout]()
    assert split.description == expected.description
    assert split.validation.user.tolist() == expected.validation.user.tolist()
    assert split.test.label_end.tolist() == expected.test.label_end.tolist()
    assert split.train.end.tolist() == expected.train.end.tolist()
    assert (split.test.user < 20).all()


def test_a_split_waits_until_the_log_has_decided_who_is_long_enough() -> None:
    with pytest.raises(SettingsError, match=r"data\.min_held_out .* still to be decided by a log"):
        split_dataset(dataset_of([[0, 1]] * 20), config=Config())


def test_the_protocol_reaches_the_split() -> None:
    dataset = dataset_of([[item % 9 for item in range(40)] for _ in range(20)])
    split = split_dataset(dataset, config=config_with(protocol="paper"))
    assert split.first_target == 14
    assert (split.test.history_end - split.test.history_start == 21).all()


def test_cutoffs_are_distinct_and_rise() -> None:
    assert checked_cutoffs([10, 5, 10]) == (5, 10)
    assert checked_cutoffs(7) == (7,)
    for wrong in ([], [0], [2.5], ["5"], [True]):
        with pytest.raises(InputError, match="Expected cutoffs as positive integers"):
            checked_cutoffs(wrong)  # type: ignore[arg-type]
