"""What every baseline of the registry keeps to, on logs with an obvious answer."""

import numpy as np
import pytest

from beamtree.baselines.registry import BASELINES
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Histories, Requests
from beamtree.evaluation.answers import Answers
from beamtree.types import NOTHING
from tests.baselines.small_logs import ask, budget, dataset_of, halves, whole
from tests.small import sequences_of

CYCLES = ([0, 1, 2], [3, 4, 5])
"""Two communities, each with a cycle of its own; item 6 belongs to nobody."""
NUM_ITEMS = 7
PERSONAL = (
    "item-to-item",
    "tfidf-knn",
    "ease",
    "ials",
    "sasrec",
    "sasrec-item-to-item",
    "gru4rec",
    "gru4rec-item-to-item",
)
"""Baselines that answer by what is in the history."""
UNTUNED = ("popularity", "personal-frequency", "item-to-item")
"""Baselines without a setting that is chosen by the labels of validation users."""
POPULAR = ("popularity", "trend-popularity", "personal-frequency")
"""Baselines that give an unseen item by its popularity."""


def cycling(*, users: int) -> Dataset:
    """Users who follow one of the cycles from one of its places; the second community is the larger one."""
    lists, times = [], []
    for user in range(users):
        cycle = CYCLES[user % 2] if user % 7 else CYCLES[1]
        length = 6 + user % 3
        lists.append([cycle[(user + place) % 3] for place in range(length)])
        times.append([100.0 * user + 7.0 * place for place in range(length)])
    return dataset_of(lists, num_items=NUM_ITEMS, times=times)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return cycling(users=60)


def fit(name: str, dataset: Dataset) -> Answers:
    return BASELINES[name].fit(dataset, whole(dataset), budget=budget())


@pytest.fixture(scope="module", params=list(BASELINES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def fitted(name: str, dataset: Dataset) -> Answers:
    return fit(name, dataset)


def test_every_baseline_is_tried_here() -> None:
    assert set(BASELINES) == {*PERSONAL, *POPULAR}


def test_who_has_two_of_a_cycle_gets_the_third(name: str, fitted: Answers) -> None:
    """Popular baselines give everybody the larger community instead."""
    histories = [[0, 1], [1, 2], [3, 4], [5, 3]]
    found = fitted.search(ask(*histories, excluded=histories), k=1).items[:, 0].tolist()
    if name in PERSONAL:
        assert found == [2, 0, 5, 4]
    else:
        assert all(item in CYCLES[1] for item in found)


def test_users_of_one_and_two_interactions_teach(name: str, dataset: Dataset) -> None:
    """Nobody goes further than two places of a cycle, and every fifth user stays at the first."""
    sequences = dataset.sequences
    lists = [sequences.of(user)[: 2 if user % 5 else 1].tolist() for user in range(len(sequences))]
    times = [[user, user + 0.5][: len(items)] for user, items in enumerate(lists)]
    answers = fit(name, dataset_of(lists, num_items=NUM_ITEMS, times=times))
    histories = [[0], [4]]
    found = answers.search(ask(*histories, excluded=histories), k=1).items[:, 0].tolist()
    communities = CYCLES if name in PERSONAL else (CYCLES[1], CYCLES[1])
    assert [item in community for item, community in zip(found, communities, strict=True)] == [True, True]


def test_excluded_and_disallowed_items_never_come_back(fitted: Answers) -> None:
    generator = np.random.default_rng(0)
    for _ in range(5):
        allowed = generator.random(NUM_ITEMS) < 0.7
        excluded = [generator.choice(NUM_ITEMS, size=size, replace=False).tolist() for size in (0, 2, 5, 7)]
        requests = Requests(
            Histories.of_lists([[0, 1], [3], [], [5, 3]]), excluded=sequences_of(excluded), allowed=allowed
        )
        found = fitted.search(requests, k=NUM_ITEMS)
        for row, left_out in enumerate(excluded):
            eligible = {item for item in range(NUM_ITEMS) if allowed[item] and item not in left_out}
            returned = found.items[row][found.items[row] != NOTHING].tolist()
            assert sorted(returned) == sorted(eligible), "all that are eligible, each once"


def test_more_asked_for_than_there_is(fitted: Answers) -> None:
    found = fitted.search(ask([0, 1], [4]), k=NUM_ITEMS + 3)
    assert found.items.shape == found.scores.shape == (2, NUM_ITEMS + 3)
    assert (found.items[:, NUM_ITEMS:] == NOTHING).all()
    assert (found.scores[:, NUM_ITEMS:] == -np.inf).all()
    assert (np.diff(found.scores[:, :NUM_ITEMS], axis=1) <= 0).all(), "best first"


def test_equal_scores_go_to_the_lower_item(fitted: Answers) -> None:
    found = fitted.search(ask([0, 1], [4], [], [6]), k=NUM_ITEMS)
    ties = np.diff(found.scores, axis=1) == 0
    assert (np.diff(found.items, axis=1)[ties] > 0).all()


def test_an_empty_history_and_nobody_at_all_are_answered(name: str, fitted: Answers) -> None:
    found = fitted.search(ask([]), k=3).items
    if not name.startswith(("sasrec", "gru4rec")):
        assert set(found[0].tolist()) == set(CYCLES[1]), "the larger community"
    assert (found != NOTHING).all()
    assert fitted.search(ask(), k=3).items.shape == (0, 3)


def test_who_asks_may_be_unknown(fitted: Answers) -> None:
    histories = Histories.of_lists([[0, 1], [3, 4]])
    times = np.array([9000.0, 9000.0])
    known = Requests(histories, users=np.array([0, 1], dtype=np.int32), times=times)
    unknown = Requests(histories, users=np.array([NOTHING, NOTHING], dtype=np.int32), times=times)
    nobody = Requests(histories)
    answers = [fitted.search(requests, k=4).items.tolist() for requests in (known, unknown, nobody)]
    assert answers[0] == answers[1] == answers[2]


def test_the_order_of_requests_does_not_matter(fitted: Answers) -> None:
    generator = np.random.default_rng(1)
    lists = [generator.integers(0, NUM_ITEMS, size=size).tolist() for size in (0, 1, 2, 3, 8, 25, 2, 5)]
    excluded = [each[:1] for each in lists]
    times = generator.integers(0, 6000, size=len(lists))
    together = fitted.search(ask(*lists, excluded=excluded, times=times), k=NUM_ITEMS)
    for row in range(len(lists)):
        alone = fitted.search(ask(lists[row], excluded=[excluded[row]], times=times[row : row + 1]), k=NUM_ITEMS)
        by_item = [found.scores[at][np.argsort(found.items[at])] for found, at in ((alone, 0), (together, row))]
        np.testing.assert_allclose(by_item[0], by_item[1], rtol=1e-5, atol=1e-6)
        assert sorted(alone.items[0]) == sorted(together.items[row])


def test_the_same_seed_gives_the_same_answers(name: str, fitted: Answers, dataset: Dataset) -> None:
    requests = ask([0, 1], [3], [2, 2, 5])
    first, again = fitted.search(requests, k=5), fit(name, dataset).search(requests, k=5)
    assert first.items.tobytes() == again.items.tobytes()
    assert first.scores.tobytes() == again.scores.tobytes()


@pytest.mark.parametrize("name", UNTUNED)
def test_what_is_held_out_has_no_influence(name: str) -> None:
    requests = ask([0, 1], [3])
    scores = []
    for second_half in ([2, 0], [6, 6]):
        dataset = dataset_of([[0, 1, *second_half], [3, 4, 5, 3], [3, 4, 5, 3]], num_items=NUM_ITEMS)
        fitted = BASELINES[name].fit(dataset, halves(dataset, validation=[0]), budget=budget())
        scores.append(fitted.search(requests, k=NUM_ITEMS).scores.tolist())
    assert scores[0] == scores[1]
