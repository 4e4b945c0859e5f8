"""What a log decides stays with the model: through saving, loading, evaluating and recommending."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import Artefact, load_artefact
from beamtree.config import Config
from beamtree.data.interactions import InteractionLog
from beamtree.data.profile import LogProfile
from beamtree.errors import DataError, SettingsError
from beamtree.recommender import DeepTreeRetriever
from beamtree.training.events import Event, LogPrepared, StepDone
from tests.fixtures.write_artefact_v1 import DIRECTORY
from tests.small import small_config, two_group_log


def undecided(**sections: dict[str, Any]) -> Config:
    data = {"min_interactions": 2, "min_held_out": None} | sections.pop("data", {})
    decided = {"shuffle_ties": None, "history_length": None}
    return small_config(data=data, decided=decided, retrieval={"beam_width": 8, "exclude_seen": None}, **sections)


def groceries() -> InteractionLog:
    """Thirty users, each with eight baskets of four out of twelve items, listed by item: many repeats, all tied."""
    generator = np.random.default_rng(0)
    rows = [
        (f"u{user:02}", f"i{item:02}", basket)
        for user in range(30)
        for basket in range(8)
        for item in np.sort(generator.choice(12, size=4, replace=False))
    ]
    return InteractionLog(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))


def films() -> InteractionLog:
    """Thirty users who see twenty of forty films each, each once, at different times."""
    generator = np.random.default_rng(1)
    rows = [
        (f"u{user:02}", f"f{film:02}", time)
        for user in range(30)
        for time, film in enumerate(generator.permutation(40)[:20])
    ]
    return InteractionLog(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))


@pytest.fixture(scope="module")
def fitted() -> DeepTreeRetriever:
    return DeepTreeRetriever(undecided()).fit(groceries())


def test_decisions_and_profile_survive_saving_and_find_the_split_again(
    fitted: DeepTreeRetriever, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model")
    loaded = DeepTreeRetriever.load(tmp_path / "model")
    assert (loaded.config.decided.shuffle_ties, loaded.config.retrieval.exclude_seen) == (True, False)
    assert loaded.config.data.min_held_out == 15
    assert loaded.config == fitted.config
    profile = LogProfile(**loaded.recommender.artefact.training["log"])
    assert (profile.users, profile.interactions, profile.tied_share, profile.sorted_share) == (30, 960, 1.0, 1.0)
    assert profile.repeat_share > 0.5
    known = fitted.evaluate(exact=False)
    for log in (groceries(), InteractionLog(groceries().frame.reverse())):
        found = loaded.evaluate(log, exact=False)
        assert {name: dict(metrics) for name, metrics in found.items()} == {
            name: dict(metrics) for name, metrics in known.items()
        }


def test_seen_items_are_recommended_by_default_where_people_repeat(fitted: DeepTreeRetriever) -> None:
    everything = [f"i{item:02}" for item in range(12)]
    assert len(fitted.recommend_histories([everything], k=5)) == 5
    assert len(fitted.recommend_histories([everything], k=5, exclude_seen=True)) == 0


def test_histories_to_recommend_from_are_settled_as_in_training(fitted: DeepTreeRetriever) -> None:
    """Only the last items of a history are read: a basket in another order of rows gives the same recommendations."""
    forwards = fitted.recommend(interactions=groceries(), k=5)
    assert fitted.recommend(interactions=InteractionLog(groceries().frame.reverse()), k=5).equals(forwards)
    user = fitted.dataset.users.encode(pl.Series(["u03"]))[0]
    history = fitted.dataset.items.decode(fitted.dataset.sequences.of(int(user))).to_list()
    own = fitted.recommend_histories([history], k=5)
    assert forwards.filter(pl.col("user_id") == "u03")["item_id"].to_list() == own["item_id"].to_list()


def test_each_log_decides_for_itself(fitted: DeepTreeRetriever) -> None:
    model = DeepTreeRetriever(undecided()).fit(films())
    assert (model.config.decided.shuffle_ties, model.config.retrieval.exclude_seen) == (False, True)
    model.fit(groceries())
    assert model.config == fitted.config


def test_what_was_read_is_told_before_the_first_step() -> None:
    events: list[Event] = []
    DeepTreeRetriever(undecided(training={"epochs": 0.2, "batch_size": 16})).fit(films(), listen=events.append)
    first = events[0]
    assert isinstance(first, LogPrepared)
    assert any("seen items are not recommended; retrieval.exclude_seen=false overrules" in line for line in first.lines)
    assert any(isinstance(event, StepDone) for event in events[1:])


def test_labels_that_were_seen_do_not_count_while_learning_and_after() -> None:
    """Ten items a group and sixteen interactions: most later ones were seen before."""
    model = DeepTreeRetriever(small_config()).fit(two_group_log())
    metrics = next(iter(model.evaluate(exact=False).values()))
    users = model.held_out()
    expected = {
        "labels": 0,
        "users": 0,
    }
    for start, middle, end in zip(users.history_start, users.label_start, users.label_end, strict=True):
        history, later = (set(model.dataset.sequences.items[a:b].tolist()) for a, b in ((start, middle), (middle, end)))
        expected["labels"] += len(later & history)
        expected["users"] += later <= history
    assert {"labels": metrics.num_seen_labels, "users": metrics.num_left_out} == expected
    assert expected["labels"] > 0
    assert metrics.num_users == len(users) - expected["users"]


def test_a_fit_with_nothing_to_hit_is_refused_before_it_begins() -> None:
    """Everybody goes round the same six items, so whatever is held out was seen."""
    rows = [(user, step % 6, step) for user in range(20) for step in range(24)]
    log = InteractionLog(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))
    events: list[Event] = []
    with pytest.raises(DataError, match=r"there is nothing to hit. Set retrieval.exclude_seen=false"):
        DeepTreeRetriever(small_config()).fit(log, listen=events.append)
    assert not any(isinstance(event, StepDone) for event in events)
    assert DeepTreeRetriever(undecided()).fit(log).config.retrieval.exclude_seen is False


def test_a_model_of_format_1_excludes_what_was_seen_and_shuffles_nothing() -> None:
    config = load_artefact(DIRECTORY).config
    assert (config.decided.shuffle_ties, config.retrieval.exclude_seen) == (False, True)


def test_a_model_with_open_settings_is_refused(fitted: DeepTreeRetriever) -> None:
    artefact = fitted.recommender.artefact
    fields = {name: getattr(artefact, name) for name in artefact.__dataclass_fields__}
    with pytest.raises(
        SettingsError, match=r"data\.min_held_out and decided\.shuffle_ties and retrieval\.exclude_seen"
    ):
        Artefact(**fields | {"config": undecided()})


def test_the_profile_in_the_model_is_that_of_its_log(fitted: DeepTreeRetriever) -> None:
    recorded = fitted.recommender.artefact.training["log"]
    assert asdict(LogProfile(**recorded)) == recorded
