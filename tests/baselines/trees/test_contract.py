"""What every tree system keeps to, on a log with an obvious answer."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from beamtree.baselines.protocol import Index
from beamtree.baselines.registry import BASELINES
from beamtree.baselines.trees.entries import ENTRIES
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Histories, Requests
from beamtree.errors import InterruptedTraining
from beamtree.evaluation.answers import Answers
from beamtree.types import NOTHING
from tests.baselines.small_logs import ask, dataset_of, halves, whole
from tests.baselines.trees.small_systems import NAMES, small_budget, small_system
from tests.small import sequences_of

CYCLES = ([0, 1, 2], [3, 4, 5])
"""Two communities, each with a cycle of its own; item 6 belongs to nobody."""
NUM_ITEMS = 7


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Users who follow one of the cycles from one of its places."""
    lists = [[CYCLES[user % 2][(user + place) % 3] for place in range(6 + user % 3)] for user in range(40)]
    return dataset_of(lists, num_items=NUM_ITEMS)


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def fitted(name: str, dataset: Dataset) -> Answers:
    budget = small_budget(epochs=5.0 if name == "jtr" else 40.0)
    return small_system(name).fit(dataset, halves(dataset, validation=range(0, 40, 5)), budget=budget)


def test_names_are_new_and_every_system_says_what_it_is() -> None:
    assert NAMES == ["jtr", "plt", "tdm", "jtm", "otm", "dtr-u", "dtr-t", "dtr-t-rl"]
    assert not set(NAMES) & set(BASELINES)
    assert all(entry.description and entry.learns and entry.libraries == ("torch",) for entry in ENTRIES)


def test_who_has_two_of_a_cycle_gets_the_third(fitted: Answers) -> None:
    histories = [[0, 1], [1, 2], [3, 4], [5, 3]]
    found = fitted.search(ask(*histories, excluded=histories), k=1).items[:, 0].tolist()
    assert found == [2, 0, 5, 4]


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


def test_more_asked_for_than_there_is_and_nobody_at_all(fitted: Answers) -> None:
    found = fitted.search(ask([0, 1], []), k=NUM_ITEMS + 3)
    assert found.items.shape == found.scores.shape == (2, NUM_ITEMS + 3)
    assert (found.items[:, NUM_ITEMS:] == NOTHING).all()
    assert (found.scores[:, NUM_ITEMS:] == -np.inf).all()
    assert (np.diff(found.scores[:, :NUM_ITEMS], axis=1) <= 0).all(), "best first"
    assert fitted.search(ask(), k=3).items.shape == (0, 3)


def test_it_is_an_index_whose_effort_can_be_turned(fitted: Answers) -> None:
    assert isinstance(fitted, Index)
    assert fitted.effort_name == "beam"
    assert list(fitted.efforts) == sorted(fitted.efforts)
    assert fitted.index_bytes > 0
    histories = [[0, 1], [4, 5]]
    for effort in (1, 3, 100):
        turned = fitted.with_effort(effort)
        assert isinstance(turned, Index)
        assert (turned.effort, turned.index_bytes) == (effort, fitted.index_bytes)
        assert (turned.search(ask(*histories, excluded=histories), k=2).items != NOTHING).all()
    assert fitted.effort == 2, "the first is as it was"


def test_the_same_seed_gives_the_same_answers(name: str, dataset: Dataset) -> None:
    requests, split = ask([0, 1], [3], [2, 2, 5]), halves(dataset, validation=range(0, 40, 5))
    first, again = (
        small_system(name).fit(dataset, split, budget=small_budget(epochs=2)).search(requests, k=5) for _ in range(2)
    )
    assert first.items.tobytes() == again.items.tobytes()
    assert first.scores.tobytes() == again.scores.tobytes()


def test_a_fit_without_time_still_answers(name: str, dataset: Dataset) -> None:
    """Nobody is held out, so that nothing can be validated either."""
    budget = replace(small_budget(epochs=2, seconds=0.0), started=0.0)
    found = small_system(name).fit(dataset, whole(dataset), budget=budget).search(ask([0, 1]), k=3)
    assert (found.items != NOTHING).all()


def test_a_finished_fit_is_found_again(name: str, dataset: Dataset, tmp_path: Path) -> None:
    requests, budget = ask([0, 1], [3]), small_budget(epochs=2, directory=tmp_path)
    split = halves(dataset, validation=range(0, 40, 5))
    first = small_system(name).fit(dataset, split, budget=budget).search(requests, k=5)
    steps: list[object] = []
    again = small_system(name).fit(dataset, split, budget=replace(budget, listen=steps.append))
    assert first.scores.tobytes() == again.search(requests, k=5).scores.tobytes()
    assert not any(type(event).__name__ == "StepDone" for event in steps), "nothing was trained"


def after(times: int) -> Callable[[], bool]:
    """Says yes once it was asked so many times."""
    asked = count(1)
    return lambda: next(asked) > times


@pytest.mark.parametrize("interrupted", ["tdm", "otm", "dtr-t-rl"])
def test_a_fit_that_is_interrupted_goes_on_to_the_same_bytes(
    interrupted: str, dataset: Dataset, tmp_path: Path
) -> None:
    """Stopped again and again, in the encoder, within rounds and between them."""
    requests, split = ask([0, 1], [3]), halves(dataset, validation=range(0, 40, 5))
    budget = small_budget(epochs=6, directory=tmp_path / "whole")
    undisturbed = small_system(interrupted).fit(dataset, split, budget=budget).search(requests, k=5)
    disturbed, stops = None, 0
    while disturbed is None:
        pieces = replace(budget, directory=tmp_path / "pieces", should_stop=after(30))
        try:
            disturbed = small_system(interrupted).fit(dataset, split, budget=pieces).search(requests, k=5)
        except InterruptedTraining:
            stops += 1
    assert stops >= 1
    assert disturbed.scores.tobytes() == undisturbed.scores.tobytes()
