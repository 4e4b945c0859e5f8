"""What every index over every kind of vectors keeps to, on a log with an obvious answer."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from beamtree.baselines import registry
from beamtree.baselines.indexes.entries import ENTRIES
from beamtree.baselines.protocol import Budget, Index
from beamtree.baselines.registry import BASELINES, Entry
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Histories, Requests
from beamtree.errors import BaselineUnavailable, InputError
from beamtree.evaluation.answers import Answers
from beamtree.types import NOTHING
from tests.baselines.indexes.communities import (
    BUDGET,
    GROUP_SIZE,
    NUM_ITEMS,
    community_log,
    skip_without_libraries_of,
)
from tests.baselines.small_logs import ask, dataset_of, whole
from tests.small import sequences_of

BY_NAME = {entry.make().name: entry for entry in ENTRIES}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return community_log()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Budget:
    """One folder for all, so that vectors are learned once."""
    return replace(BUDGET, directory=tmp_path_factory.mktemp("vectors"))


@pytest.fixture(scope="module", params=list(BY_NAME))
def entry(request: pytest.FixtureRequest) -> Entry:
    chosen = BY_NAME[str(request.param)]
    skip_without_libraries_of(chosen)
    return chosen


@pytest.fixture(scope="module")
def fitted(entry: Entry, dataset: Dataset, shared: Budget) -> Answers:
    return entry.fit(dataset, whole(dataset), budget=shared)


def test_every_index_takes_every_kind_of_vectors() -> None:
    indexes = ("scann", "scann-published", "ip-nsw", "ivf-pq", "qinco", "rotlex")
    assert set(BY_NAME) == {f"{index}-{source}" for index in indexes for source in ("mean", "sasrec")}
    assert not set(BY_NAME) & set(BASELINES)


def test_who_keeps_to_a_group_gets_the_rest_of_it(fitted: Answers) -> None:
    histories = [[0, 1, 2, 3], [8, 9, 10, 11], [12, 17, 16, 14], [23, 18, 22, 20]]
    found = fitted.search(ask(*histories, excluded=histories), k=2).items
    assert [set(row) for row in found.tolist()] == [{4, 5}, {6, 7}, {13, 15}, {19, 21}]


def test_excluded_and_disallowed_items_never_come_back(fitted: Answers) -> None:
    generator = np.random.default_rng(0)
    for _ in range(3):
        allowed = generator.random(NUM_ITEMS) < 0.6
        excluded = [generator.choice(NUM_ITEMS, size=size, replace=False).tolist() for size in (0, 3, 17, NUM_ITEMS)]
        requests = Requests(
            Histories.of_lists([[0, 1], [9], [], [20, 21]]), excluded=sequences_of(excluded), allowed=allowed
        )
        found = fitted.search(requests, k=NUM_ITEMS)
        for row, left_out in enumerate(excluded):
            eligible = {item for item in range(NUM_ITEMS) if allowed[item] and item not in left_out}
            returned = found.items[row][found.items[row] != NOTHING].tolist()
            assert sorted(returned) == sorted(eligible), "all that are eligible, each once"


def test_k_items_come_back_best_first_whatever_the_effort(fitted: Answers) -> None:
    assert isinstance(fitted, Index)
    requests = ask([0, 1], [9, 10], [], excluded=[[0, 1], [9, 10], []])
    for effort in fitted.efforts:
        found = fitted.with_effort(effort).search(requests, k=10)
        assert (found.items != NOTHING).all()
        assert (np.diff(found.scores, axis=1) <= 0).all()
    beyond = fitted.search(requests, k=NUM_ITEMS + 2)
    assert (beyond.items[:, NUM_ITEMS:] == NOTHING).all()
    assert (beyond.scores[:, NUM_ITEMS:] == -np.inf).all()


def test_equal_scores_go_to_the_lower_item(fitted: Answers) -> None:
    found = fitted.search(ask([0, 1], [9], []), k=NUM_ITEMS)
    ties = np.diff(found.scores, axis=1) == 0
    assert (np.diff(found.items, axis=1)[ties] > 0).all()


def test_nobody_is_answered_and_k_is_checked(fitted: Answers) -> None:
    assert fitted.search(ask(), k=3).items.shape == (0, 3)
    with pytest.raises(InputError, match="k of at least 1"):
        fitted.search(ask([0]), k=0)


def test_the_order_of_requests_does_not_matter(fitted: Answers) -> None:
    """At full effort: where a part is searched, the rounding of a query may decide between parts that are as near."""
    assert isinstance(fitted, Index)
    thorough = fitted.with_effort(fitted.efforts[-1])
    generator = np.random.default_rng(1)
    lists = [generator.integers(0, NUM_ITEMS, size=size).tolist() for size in (0, 1, 2, 3, 8, 25)]
    together = thorough.search(ask(*lists, excluded=lists), k=4)
    for row, history in enumerate(lists):
        alone = thorough.search(ask(history, excluded=[history]), k=4)
        np.testing.assert_allclose(alone.scores[0], together.scores[row], rtol=1e-4, atol=1e-5)


def test_the_same_seed_gives_the_same_answers(entry: Entry, fitted: Answers, dataset: Dataset, shared: Budget) -> None:
    requests = ask([0, 1], [9], [20, 20, 21])
    first = fitted.search(requests, k=5)
    again = entry.fit(dataset, whole(dataset), budget=shared).search(requests, k=5)
    assert first.items.tobytes() == again.items.tobytes()
    assert first.scores.tobytes() == again.scores.tobytes()


def test_the_knob_and_the_size_are_told(fitted: Answers) -> None:
    assert isinstance(fitted, Index)
    assert fitted.effort in fitted.efforts
    assert list(fitted.efforts) == sorted(set(fitted.efforts))
    assert fitted.efforts[0] >= 1
    assert fitted.index_bytes > 0
    moved = fitted.with_effort(fitted.efforts[-1])
    assert isinstance(moved, Index)
    assert (moved.effort, moved.index_bytes) == (fitted.efforts[-1], fitted.index_bytes)
    with pytest.raises(InputError, match=f"{fitted.effort_name} of at least 1, got 0"):
        fitted.with_effort(0)


def test_a_missing_library_names_the_remedy(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "scann" else object())
    with pytest.raises(BaselineUnavailable, match=r"needs scann: pip install 'beamtree\[baselines,train\]'"):
        BY_NAME["scann-mean"].fit(dataset, whole(dataset), budget=BUDGET)


def test_a_handful_of_items_is_not_indexed() -> None:
    few = dataset_of([[0, 1, 2]] * 4, num_items=GROUP_SIZE)
    with pytest.raises(BaselineUnavailable, match="at least 16 items to index, got 6"):
        BY_NAME["ivf-pq-mean"].make().fit(few, whole(few), budget=BUDGET)


def test_the_list_of_systems_needs_no_library() -> None:
    said = (
        "import sys, beamtree.baselines.indexes.entries; print({'torch', 'faiss', 'scann', 'scipy'} & set(sys.modules))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "set()"
