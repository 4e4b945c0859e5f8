"""A table of a model and its baselines, one of which may be missing."""

from collections.abc import Callable

import numpy as np
import pytest

from beamtree.baselines.comparison import compare
from beamtree.baselines.popularity import PopularItems
from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import Entry
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.errors import BaselineUnavailable, DataError
from beamtree.evaluation.protocol import evaluate
from tests.baselines.small_logs import budget, dataset_of, halves

# Everybody goes on to item 1.
DATASET = dataset_of([[2, 1], [3, 1]] * 3, num_items=50)
SPLIT = halves(DATASET, validation=range(6))


class Favourite:
    """Twenty items from this one on, or an error."""

    name = "favourite"

    def __init__(self, first: int | Exception) -> None:
        self.first = first

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> PopularItems:  # noqa: ARG002
        if isinstance(self.first, Exception):
            raise self.first
        return favouring(self.first)


def favouring(first: int) -> PopularItems:
    return PopularItems(((np.arange(50) >= first) & (np.arange(50) < first + 20)).astype(np.int64))


def entry(first: int | Exception, *, learns: bool = False) -> Entry:
    make: Callable[[], Favourite] = lambda: Favourite(first)  # noqa: E731
    return Entry(make, "for a test", lambda *_: None, learns=learns)


def test_the_model_comes_first_and_is_judged_against_the_best() -> None:
    model = evaluate(favouring(1), DATASET, SPLIT.validation, config=budget().config)
    found = compare(
        {"beam search": model},
        {"misses": entry(20), "absent": entry(BaselineUnavailable("absent needs rain.")), "hits": entry(0)},
        DATASET,
        SPLIT,
        users=SPLIT.validation,
        budget=budget(),
    )
    assert list(found) == ["beam search", "misses", "hits"]
    assert found["misses"]["f@20"] == 0.0 < found["hits"]["f@20"]
    assert found.left_out == {"absent": "absent needs rain."}
    assert found.seconds.keys() == {"misses", "hits"}
    assert found.verdict is not None
    assert (found.verdict.baseline, found.verdict.standing) == ("hits", "level")
    assert found.verdict.kind == "simple baseline"


def test_without_baselines_there_is_no_verdict() -> None:
    model = evaluate(favouring(1), DATASET, SPLIT.validation, config=budget().config)
    found = compare({"beam search": model}, {}, DATASET, SPLIT, users=SPLIT.validation, budget=budget())
    assert found.verdict is None


def test_other_errors_are_not_hidden() -> None:
    model = evaluate(favouring(1), DATASET, SPLIT.validation, config=budget().config)
    with pytest.raises(DataError, match="broken"):
        compare(
            {"beam search": model},
            {"broken": entry(DataError("broken"))},
            DATASET,
            SPLIT,
            users=SPLIT.validation,
            budget=budget(),
        )
