from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.config import Config
from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.interactions import InteractionLog
from beamtree.data.split import HeldOut, split_by_time, split_leave_last_out, split_none, split_users
from beamtree.evaluation import protocol
from beamtree.evaluation.protocol import (
    Questions,
    by_beam,
    by_scan,
    by_scores,
    evaluate,
    split_dataset,
)
from beamtree.retrieval.engine import Engine
from tests.small import ragged, random_tree, sequences_of, small_config, stirred_model, weights_of


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
    """A recommender that always says the same, and remembers what it was asked."""

    def __init__(self, lists: list[list[int]]) -> None:
        self.lists = lists
        self.asked: list[tuple[Questions, int]] = []

    def __call__(self, questions: Questions, k: int) -> Any:
        self.asked.append((questions, k))
        return np.array(self.lists, dtype=np.int32)


def config_with(*, protocol: str = "clean", exclude_seen: bool = True) -> Config:
    return small_config(data={"protocol": protocol}, retrieval={"exclude_seen": exclude_seen})


def test_the_clean_protocol_counts_distinct_labels() -> None:
    """Labels {3, 0, 4} and {1}. Hits at 2: {3} of [3, 5] and {1} of [1, 2]; at 3: {3, 4} and {1}."""
    recommend = Listed([[3, 5, 4], [1, 2, 3]])
    metrics = evaluate(recommend, DATASET, USERS, config=config_with(exclude_seen=False), cutoffs=(2, 3))
    assert metrics["recall@2"] == pytest.approx((1 / 3 + 1) / 2)
    assert metrics["precision@2"] == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert metrics["recall@3"] == pytest.approx((2 / 3 + 1) / 2)
    assert metrics["coverage@3"] == pytest.approx(5 / 6), "items 1 2 3 4 5 of six"


def test_the_protocol_of_the_paper_counts_repeated_labels_each_time() -> None:
    """Labels [3, 3, 0, 4] and [1]: the same hits out of one more."""
    recommend = Listed([[3, 5, 4], [1, 2, 3]])
    metrics = evaluate(recommend, DATASET, USERS, config=config_with(protocol="paper"), cutoffs=(2, 3))
    assert metrics["recall@2"] == pytest.approx((1 / 4 + 1) / 2)
    assert metrics["recall@3"] == pytest.approx((2 / 4 + 1) / 2)


@pytest.mark.parametrize(
    ("protocol", "exclude_seen", "excluded"),
    [("clean", True, [[0, 1, 2], [5]]), ("clean", False, None), ("paper", True, None), ("paper", False, None)],
)
def test_recommenders_are_asked_for_the_largest_cutoff_without_what_was_seen(
    protocol: str, exclude_seen: bool, excluded: list[list[int]] | None
) -> None:
    recommend = Listed([[3, 5, 4], [1, 2, 3]])
    evaluate(
        recommend, DATASET, USERS, config=config_with(protocol=protocol, exclude_seen=exclude_seen), cutoffs=(3, 2)
    )
    ((questions, k),) = recommend.asked
    assert k == 3
    assert questions.histories(2).tolist() == [[1, 2], [-1, 5]]
    if excluded is None:
        assert questions.excluded_items is None
    else:
        assert questions.excluded_items is not None
        flat, offsets = questions.excluded_items
        assert [part.tolist() for part in np.split(flat, offsets[1:-1])] == excluded


@pytest.mark.parametrize("holdout", ["users", "last", "time", "none"])
def test_settings_choose_the_split(holdout: str) -> None:
    generator = np.random.default_rng(0)
    dataset = dataset_of([generator.integers(0, 9, size=12).tolist() for _ in range(20)])
    config = small_config(data={"holdout": holdout, "validation_share": 0.2, "test_share": 0.3}, training={"seed": 5})
    split = split_dataset(dataset, config=config)
    shares = {"seed": 5, "validation_share": 0.2, "test_share": 0.3}
    expected = {
        "users": lambda: split_users(dataset.sequences, **shares),  # type: ignore[arg-type]
        "last": lambda: split_leave_last_out(dataset.sequences, seed=5),
        "time": lambda: split_by_time(dataset, **shares),  # type: ignore[arg-type]
        "none": lambda: split_none(dataset.sequences),
    }[holdout]()
    assert split.description == expected.description
    assert split.validation.user.tolist() == expected.validation.user.tolist()
    assert split.test.label_end.tolist() == expected.test.label_end.tolist()
    assert split.train.end.tolist() == expected.train.end.tolist()


def test_the_protocol_reaches_the_split() -> None:
    dataset = dataset_of([[item % 9 for item in range(40)] for _ in range(20)])
    split = split_dataset(dataset, config=config_with(protocol="paper"))
    assert split.first_target == 14
    assert (split.test.history_end - split.test.history_start == 21).all()


def test_beam_and_scan_answer_with_the_engine() -> None:
    config = small_config()
    tree = random_tree(30, branching=2, seed=0)
    engine = Engine(weights_of(stirred_model(config.model, tree, seed=0)), tree, settings=config.model)
    sequences = sequences_of([list(range(9)), [4, 4, 9]])
    users = held_out((0, 7, 9), (9, 11, 12))
    questions = Questions(sequences, users, excluded_items=users.seen(sequences))
    histories = np.array([[2, 3, 4, 5, 6], [-1, -1, -1, 4, 4]], dtype=np.int32)
    beam = engine.search(histories, k=3, beam_width=4, excluded_items=questions.excluded_items).items
    scan = engine.scan(histories, k=3, excluded_items=questions.excluded_items).items
    assert by_beam(engine, beam_width=4)(questions, 3).tolist() == beam.tolist()
    assert by_scan(engine)(questions, 3).tolist() == scan.tolist()
    assert not set(range(7)) & set(scan[0].tolist())


@pytest.mark.parametrize("at_a_time", [1, 13, 10_000])
def test_best_scores_with_ties_exclusions_and_fewer_than_asked_in_blocks_of_users(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    """Against a full stable sort; scores of few values, users who exclude up to all but two of six items."""
    monkeypatch.setattr(protocol, "SCORES_AT_A_TIME", at_a_time)
    sequences = sequences_of([[user % 6, (user + 1) % 6] for user in range(9)])
    users = held_out(*[(2 * user, 2 * user + 1, 2 * user + 2) for user in range(9)])
    generator = np.random.default_rng(4)
    table = generator.integers(0, 3, size=(6, 6)).astype(np.float32)
    lists = [generator.permutation(6)[: user % 5].tolist() for user in range(9)]
    recommend = by_scores(lambda histories: table[histories[:, -1]], history_length=2, num_items=6)
    for k in (1, 3, 6, 8):
        found = recommend(Questions(sequences, users, ragged(lists)), k)
        for user, excluded in enumerate(lists):
            ranked = [item for item in np.argsort(-table[user % 6], kind="stable").tolist() if item not in excluded]
            assert found[user].tolist() == (ranked + [-1] * 8)[:k]
