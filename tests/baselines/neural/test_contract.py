"""What every neural system keeps to, on logs with an obvious answer: the checks of all baselines, and their own."""

from dataclasses import replace

import pytest

from beamtree.baselines import registry
from beamtree.baselines.neural.entries import ENTRIES, NeuralBaseline
from beamtree.baselines.registry import Entry
from beamtree.data.dataset import Dataset
from beamtree.errors import BaselineUnavailable
from beamtree.evaluation.answers import Answers
from beamtree.types import NOTHING
from tests.baselines.neural.small import MODULES, NAMES, quick, train
from tests.baselines.small_logs import ask, budget, dataset_of, whole
from tests.baselines.test_contract import (
    CYCLES,
    NUM_ITEMS,
    cycling,
    test_equal_scores_go_to_the_lower_item,
    test_excluded_and_disallowed_items_never_come_back,
    test_more_asked_for_than_there_is,
    test_the_order_of_requests_does_not_matter,
    test_who_asks_may_be_unknown,
)

__all__ = [
    "test_equal_scores_go_to_the_lower_item",
    "test_excluded_and_disallowed_items_never_come_back",
    "test_more_asked_for_than_there_is",
    "test_the_order_of_requests_does_not_matter",
    "test_who_asks_may_be_unknown",
]


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return cycling(users=60)


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "lightgcn":
        pytest.importorskip("torch_geometric")
    return str(request.param)


@pytest.fixture(scope="module")
def fitted(name: str, dataset: Dataset) -> Answers:
    return train(quick(name), dataset, whole(dataset), budget=budget()).answers()


def test_who_has_two_of_a_cycle_gets_the_third(fitted: Answers) -> None:
    histories = [[0, 1], [1, 2], [3, 4], [5, 3]]
    found = fitted.search(ask(*histories, excluded=histories), k=1).items[:, 0].tolist()
    assert found == [2, 0, 5, 4]


def test_users_of_one_and_two_interactions_teach(name: str, dataset: Dataset) -> None:
    """Nobody goes further than two places of a cycle, and every fifth user stays at the first."""
    sequences = dataset.sequences
    lists = [sequences.of(user)[: 2 if user % 5 else 1].tolist() for user in range(len(sequences))]
    short = dataset_of(lists, num_items=NUM_ITEMS)
    answers = train(quick(name), short, whole(short), budget=budget()).answers()
    histories = [[0], [4]]
    found = answers.search(ask(*histories, excluded=histories), k=1).items[:, 0].tolist()
    assert [item in community for item, community in zip(found, CYCLES, strict=True)] == [True, True]


def test_an_empty_history_and_nobody_at_all_are_answered(name: str, fitted: Answers) -> None:
    found = fitted.search(ask([]), k=3).items
    if name != "din":
        assert set(found[0].tolist()) == set(CYCLES[1]), "the larger community"
    assert (found != NOTHING).all()
    assert fitted.search(ask(), k=3).items.shape == (0, 3)


def test_the_same_seed_gives_the_same_answers(name: str, dataset: Dataset) -> None:
    requests, settings = ask([0, 1], [3], [2, 2, 5]), quick(name, epochs=2)
    first, again, other = (
        train(settings, dataset, whole(dataset), budget=budget(seed=seed)).answers().search(requests, k=5)
        for seed in (1, 1, 2)
    )
    assert first.items.tobytes() == again.items.tobytes()
    assert first.scores.tobytes() == again.scores.tobytes()
    assert first.scores.tobytes() != other.scores.tobytes()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.make().name)
def test_every_entry_is_fitted_with_settings_of_its_own(entry: Entry, dataset: Dataset) -> None:
    baseline = entry.make()
    assert isinstance(baseline, NeuralBaseline)
    name = baseline.name
    module = MODULES[name.removesuffix("-published")]
    assert getattr(module, baseline.variant).name == name, "checkpoints are found by this name"
    if name.startswith("lightgcn"):
        pytest.importorskip("torch_geometric")
    limited = replace(budget(), seconds=0.0)
    found = entry.fit(dataset, whole(dataset), budget=limited).search(ask([0, 1], [4]), k=3)
    assert found.items.shape == (2, 3)
    assert (found.items != NOTHING).all()


def test_published_settings_have_none_of_our_options_and_tuned_ones_all() -> None:
    for module in MODULES.values():
        assert module.published.recipe.targets == 1
        assert module.published.recipe.embedding_init == "random"
        assert module.published.recipe.learning_rates == (1e-3,)
    for tuned in [module.tuned for module in MODULES.values() if hasattr(module, "tuned")]:
        assert tuned.recipe.targets == 10
        assert tuned.recipe.embedding_init == "svd"
        assert len(tuned.recipe.learning_rates) > 1


def test_a_missing_library_is_named_with_what_installs_it(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda library: None if library == "torch_geometric" else object())
    entry = {entry.make().name: entry for entry in ENTRIES}["lightgcn"]
    with pytest.raises(BaselineUnavailable, match=r"lightgcn needs torch_geometric: .*beamtree\[train,baselines\]"):
        entry.fit(dataset, whole(dataset), budget=budget())
