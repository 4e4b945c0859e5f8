from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import Artefact, load_artefact, save_artefact
from beamtree.baselines.popularity import popular_items
from beamtree.config import Config
from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.interactions import InteractionLog
from beamtree.data.split import split_none, split_users
from beamtree.errors import ArtefactError, InterruptedTraining, SettingsError
from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.protocol import evaluate
from beamtree.fitting.fit import fit_model
from beamtree.fitting.run import WorkDirectory
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import RecommendOptions
from beamtree.retrieval.tables import recommend_histories
from beamtree.training.events import TREE_MODEL, Event, PartsWeighed, Resumed, StepDone, Validated
from tests.small import assert_same_bytes, small_config, two_group_log

GROUP = 25
CATEGORIES = pl.DataFrame(
    {
        "item_id": [f"{group}{item}" for group in "ab" for item in range(GROUP)],
        "category": ["A"] * GROUP + ["B"] * GROUP,
    }
)


def two_groups(*, length: int = 16) -> InteractionLog:
    return two_group_log(users_per_group=40, items_per_group=GROUP, length=length)


def learning_config(**sections: dict[str, Any]) -> Config:
    """Large enough and long enough to tell the groups apart without fail."""
    sizes: dict[str, Any] = {"embedding_dim": 8, "windows": [2, 2, 1], "attention_hidden": 8, "layers": [16, 8, 8]}
    pace: dict[str, Any] = {
        "epochs": 4,
        "batch_size": 32,
        "negatives": 8,
        "learning_rate": 0.02,
        "validations": 2,
        "seed": 2,
    }
    return small_config(**{"model": sizes, "training": pace} | sections)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return prepare_dataset(two_groups(), items=CATEGORIES, min_interactions=2)


def fit(dataset: Dataset, config: Config, **options: Any) -> Artefact:
    split = options.pop("split", None) or split_users(dataset.sequences, seed=config.training.seed)
    everything: dict[str, Any] = {"work": None, "listen": lambda _: None, "should_stop": lambda: False} | options
    return fit_model(dataset, split, config=config, **everything)


@pytest.fixture(scope="module")
def fitted(dataset: Dataset) -> Artefact:
    return fit(dataset, learning_config())


def share_in_group(artefact: Artefact) -> float:
    """How many of the best five for histories of one group belong to it."""
    histories = [[f"{group}{item}" for item in items] for group in "ab" for items in ([0, 1, 2], [17, 3], [5, 24])]
    options = RecommendOptions(k=5, exclude_seen=False)
    table = recommend_histories(Recommender(artefact), histories, options=options)
    groups = np.repeat(["a", "b"], 15)
    return float((table["item_id"].str.slice(0, 1).to_numpy() == groups).mean())


def test_recommendations_stay_in_the_group_that_was_seen(fitted: Artefact) -> None:
    assert share_in_group(fitted) == 1.0


def test_it_beats_popularity(dataset: Dataset, fitted: Artefact) -> None:
    config = learning_config(retrieval={"exclude_seen": False})
    split = split_users(dataset.sequences, seed=2)
    search = BeamSearch(Recommender(fitted).engine, 8)
    learned = evaluate(search, dataset, split.test, config=config, cutoffs=(5,))
    popular = evaluate(popular_items(dataset, split), dataset, split.test, config=config, cutoffs=(5,))
    assert learned["f@5"] > 1.3 * popular["f@5"]


def test_the_artefact_says_how_it_came_to_be(dataset: Dataset, fitted: Artefact) -> None:
    split = split_users(dataset.sequences, seed=2)
    assert fitted.data_fingerprint == dataset.fingerprint
    assert fitted.item_table.equals(dataset.item_table)
    assert fitted.config == learning_config()
    assert fitted.training["split"] == split.description
    spans = split.train.end - split.train.start
    assert fitted.training["instances"] == (spans - 1).sum()
    assert fitted.training["steps"] == 4 * ((spans - 1).sum() // 32)
    (only_round,) = fitted.training["rounds"]
    assert [entry["step"] for entry in only_round["validations"]] == [only_round["steps"] // 2, only_round["steps"]]
    assert only_round["best_step"] in {entry["step"] for entry in only_round["validations"]}
    assert fitted.popularity.sum() == spans.sum(), "only what was trained on is counted"
    parts = [fitted.training[f"{part}_seconds"] for part in ("planting", "learning", "relearning")]
    assert fitted.training["seconds"] == pytest.approx(sum(parts), abs=0.2)
    assert "estimator_seconds" not in fitted.training


def test_what_was_fitted_is_the_same_after_a_round_trip(fitted: Artefact, tmp_path: Path) -> None:
    save_artefact(tmp_path, fitted)
    before, after = (
        recommend_histories(Recommender(artefact), [["a1", "a2"], ["b3"]], options=RecommendOptions(k=5))
        for artefact in (fitted, load_artefact(tmp_path))
    )
    assert before.equals(after)


@pytest.mark.parametrize("order", ["auto", "random", "category", "clustering"])
def test_every_initial_order_learns(dataset: Dataset, order: str) -> None:
    artefact = fit(dataset, learning_config(tree={"order": order}))
    assert sorted(artefact.tree.item_at_leaf.tolist()) == list(range(2 * GROUP))
    assert share_in_group(artefact) >= 0.75, "a guess would give a half"


def test_an_order_by_category_needs_categories() -> None:
    bare = prepare_dataset(two_groups(), min_interactions=2)
    config = small_config(tree={"order": "category"})
    with pytest.raises(SettingsError, match=r"tree\.order = 'category' needs an item table with a column 'category'"):
        fit(bare, config)


@pytest.mark.parametrize("method", ["dtr-u", "dtr-t"])
def test_the_same_seed_gives_the_same_bytes(dataset: Dataset, method: str) -> None:
    config = small_config(training={"method": method})
    first, again = fit(dataset, config), fit(dataset, config)
    assert_same_bytes({**first.weights}, {**again.weights})
    np.testing.assert_array_equal(first.tree.item_at_leaf, again.tree.item_at_leaf)
    other = fit(dataset, small_config(training={"method": method, "seed": 1}))
    assert (first.weights["attention/mlp.0.weight"] != other.weights["attention/mlp.0.weight"]).any()


def test_with_nobody_held_out_it_trains_to_the_end(dataset: Dataset) -> None:
    events: list[Event] = []
    artefact = fit(dataset, small_config(), split=split_none(dataset.sequences), listen=events.append)
    assert {type(event) for event in events} == {StepDone, PartsWeighed}
    assert artefact.training["rounds"][0]["validations"] == []
    assert artefact.training["steps"] == len(events) - 1 == 80 * 15 // 16


def test_validation_asks_no_more_users_than_it_is_told_to(dataset: Dataset) -> None:
    """With a single user asked, precision at 20 can only be a multiple of one twentieth."""
    events: list[Event] = []
    config = small_config(training={"validation_users": 1, "validations": 2})
    fit(dataset, config, listen=events.append)
    validated = [event for event in events if isinstance(event, Validated)]
    assert len(validated) == 2
    for event in validated:
        assert event.metrics["precision@20"] * 20 == pytest.approx(round(event.metrics["precision@20"] * 20))
        assert event.metrics["distinct_lists@20"] == 1.0


def test_it_starts_from_who_interacted_with_what_where_it_is_told_to(dataset: Dataset) -> None:
    """A training that moves nothing shows where the items began: within a group alike, or at random."""
    for first_vectors, is_alike in (("cooccurrence", True), ("random", False)):
        model = {"embedding_init": first_vectors, "history_table": "separate"}
        still = fit(dataset, small_config(model=model, training={"learning_rate": 1e-9}))
        alike = np.corrcoef(still.weights["attention/item_table"])
        assert (alike[:GROUP, :GROUP].mean() > alike[:GROUP, GROUP:].mean() + 0.5) == is_alike


def test_stopped_and_resumed_it_is_the_same_model(dataset: Dataset, tmp_path: Path) -> None:
    config = small_config(tree={"order": "random"}, model={"embedding_init": "random"})
    whole = fit(dataset, config)
    with pytest.raises(InterruptedTraining):
        fit(dataset, config, work=WorkDirectory(tmp_path, resume=False), should_stop=interrupted_after(10))
    events: list[Event] = []
    resumed = fit(dataset, config, work=WorkDirectory(tmp_path, resume=True), listen=events.append)
    assert events[0] == Resumed(TREE_MODEL, 10)
    assert_same_bytes({**resumed.weights}, {**whole.weights})
    assert resumed.training["rounds"][0]["validations"] == whole.training["rounds"][0]["validations"]
    other = prepare_dataset(two_groups(length=15), items=CATEGORIES, min_interactions=2)
    with pytest.raises(ArtefactError, match="another log"):
        fit(other, config, work=WorkDirectory(tmp_path, resume=True))


def interrupted_after(steps: int) -> Callable[[], bool]:
    asked = iter(range(1, 1000))
    return lambda: next(asked) == steps


def test_stopped_while_the_parts_are_weighed_it_learns_nothing_anew(dataset: Dataset, tmp_path: Path) -> None:
    config = small_config(training={"validation_users": 30, "patience": 100})
    split = split_users(dataset.sequences, seed=0, validation_share=0.4)
    whole = fit(dataset, config, split=split)
    before: list[Event] = []
    is_learned = lambda: sum(isinstance(event, StepDone) for event in before) == whole.training["steps"]  # noqa: E731
    begun, resumed = WorkDirectory(tmp_path, resume=False), WorkDirectory(tmp_path, resume=True)
    with pytest.raises(InterruptedTraining, match="while weighing the parts"):
        fit(dataset, config, split=split, work=begun, listen=before.append, should_stop=is_learned)
    after: list[Event] = []
    again = fit(dataset, config, split=split, work=resumed, listen=after.append)
    assert not any(isinstance(event, StepDone) for event in after)
    assert again.training["weighing"]["trials"] > 1
    assert_same_bytes({**again.weights}, {**whole.weights})


def test_a_resumed_run_keeps_the_tree_it_began_with(tmp_path: Path) -> None:
    """The first tree depends on more than the log: here on categories that have changed in the meantime."""
    config = small_config(tree={"order": "category"})
    alternating = CATEGORIES.with_columns(category=pl.Series(["a", "b"] * GROUP))
    before = prepare_dataset(two_groups(), items=CATEGORIES, min_interactions=2)
    after = prepare_dataset(two_groups(), items=alternating, min_interactions=2)
    whole = fit(before, config)
    with pytest.raises(InterruptedTraining):
        fit(before, config, work=WorkDirectory(tmp_path, resume=False), should_stop=interrupted_after(9))
    resumed = fit(after, config, work=WorkDirectory(tmp_path, resume=True))
    np.testing.assert_array_equal(resumed.tree.item_at_leaf, whole.tree.item_at_leaf)
    assert_same_bytes({**resumed.weights}, {**whole.weights})


def test_a_run_that_begins_anew_forgets_the_finished_one_before_it(dataset: Dataset, tmp_path: Path) -> None:
    """Finished once, begun again without resuming, stopped, resumed: it goes on from the second run's checkpoint."""
    config = small_config(tree={"order": "random"}, model={"embedding_init": "random"})
    fit(dataset, config, work=WorkDirectory(tmp_path, resume=False))
    with pytest.raises(InterruptedTraining):
        fit(dataset, config, work=WorkDirectory(tmp_path, resume=False), should_stop=interrupted_after(5))
    events: list[Event] = []
    fit(dataset, config, work=WorkDirectory(tmp_path, resume=True), listen=events.append)
    assert events[0] == Resumed(TREE_MODEL, 5)


def test_a_run_that_begins_anew_and_stops_while_planting_has_nothing_to_resume(
    dataset: Dataset, tmp_path: Path
) -> None:
    config = small_config(tree={"order": "clustering"})
    fit(dataset, config, work=WorkDirectory(tmp_path, resume=False))
    with pytest.raises(InterruptedTraining, match="Stopped while planting the first tree"):
        fit(dataset, config, work=WorkDirectory(tmp_path, resume=False), should_stop=interrupted_after(2))
    events: list[Event] = []
    fit(dataset, config, work=WorkDirectory(tmp_path, resume=True), listen=events.append)
    assert isinstance(events[0], StepDone)
    assert events[0].step == 1
