"""Settings are chosen by validation users, in the order in which they are given."""

from dataclasses import replace

import numpy as np
import pytest

from beamtree.baselines import tuning
from beamtree.baselines.popularity import PopularItems
from beamtree.baselines.protocol import Budget
from beamtree.baselines.tuning import choose
from beamtree.data.split import Split
from beamtree.errors import InterruptedTraining
from tests.baselines.small_logs import budget, dataset_of, halves, whole

DATASET = dataset_of([[50, 7], [51, 7], [52, 30]], num_items=60)
SPLIT = halves(DATASET, validation=[0, 1, 2])


def favouring(item: int) -> PopularItems:
    """Twenty items from this one on."""
    counts = np.zeros(60, dtype=np.int64)
    counts[item : item + 20] = 1
    return PopularItems(counts)


def chosen(settings: list[int], *, split: Split = SPLIT, budget: Budget) -> int:
    found = choose(settings, favouring, DATASET, split, name="favouring", budget=budget)
    return int(found.ranking[0])


def test_the_best_on_validation_users_wins_and_the_first_among_equals() -> None:
    assert chosen([25, 5, 35, 6], budget=budget()) == 5
    assert chosen([35, 40], budget=budget()) == 35


def test_without_validation_users_the_first_one_is_taken_and_no_other_fitted() -> None:
    fitted: list[int] = []

    def fit(item: int) -> PopularItems:
        fitted.append(item)
        return favouring(item)

    choose([35, 5], fit, DATASET, whole(DATASET), name="favouring", budget=budget())
    assert fitted == [35]


def test_when_the_seconds_have_passed_no_further_setting_is_tried() -> None:
    assert chosen([35, 5], budget=replace(budget(), seconds=0.0)) == 35
    assert chosen([35, 5], budget=replace(budget(), seconds=100.0)) == 5


def test_at_most_so_many_users_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three users go on to 7; a sample of one may be the third."""
    monkeypatch.setattr(tuning, "MAX_USERS", 1)
    assert {chosen([25, 5], budget=budget(seed=seed)) for seed in range(8)} == {5, 25}


def test_it_stops_when_asked_to() -> None:
    with pytest.raises(InterruptedTraining, match="while a baseline was fitted"):
        chosen([25, 5], budget=replace(budget(), should_stop=lambda: True))
