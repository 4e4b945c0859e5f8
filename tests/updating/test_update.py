"""A model goes on: new rows, new items and users, without forgetting, and never to something worse unless forced."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.data.interactions import InteractionLog
from beamtree.data.requests import Histories, Requests
from beamtree.errors import ArtefactError, DataError, InputError, InterruptedTraining, UpdateRefused
from beamtree.evaluation.metrics import Metrics
from beamtree.model.memory import Memory
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.recommender import Recommender
from beamtree.training.events import Event, ModelUpdated, StepDone
from beamtree.training.placement import move_leaf_rows
from beamtree.tree.item_tree import ItemTree
from beamtree.updating import tower
from beamtree.updating.subtrees import PlacedVectors
from beamtree.updating.update import Verdict
from tests.fitting.test_trend import news_log
from tests.small import assert_same_bytes, small_config, two_group_log

ENCODER: dict[str, Any] = {
    "width": 8,
    "layers": 1,
    "epochs": 3,
    "dropout": 0.0,
    "batch_positions": 60,
}
OLD = two_group_log(users_per_group=60, items_per_group=25)


def config_of(*parts: str) -> Any:
    return small_config(model={"parts": parts}, estimator=ENCODER)


def later(log: InteractionLog, *, users: int, seed: int = 5, new_items: int = 0) -> InteractionLog:
    """What some known users, and one new user, do afterwards: more of what they did; new items among it."""
    rng = np.random.default_rng(seed)
    newest = int(log.frame["timestamp"].max())  # type: ignore[arg-type]
    histories = log.frame.group_by("user_id", maintain_order=True).agg("item_id").head(users)
    rows = []
    for place, (user, items) in enumerate(histories.iter_rows()):
        for number in range(4):
            group = str(items[0])[0]
            item = f"{group}{rng.integers(0, 25)}"
            if new_items and number == 3:
                item = f"new{place % new_items}"
            rows.append((user, item, newest + 1 + number))
    rows += [("stranger", rows[0][1], newest + 9), ("stranger", rows[1][1], newest + 10)]
    return InteractionLog(pl.DataFrame(rows, schema=log.frame.schema, orient="row"))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "shop"
    DeepTreeRetriever(config_of("tower", "memory")).fit(OLD, progress=False).save(folder)
    return folder


def test_new_rows_items_and_users_are_learned(fitted: Path) -> None:
    model = DeepTreeRetriever.load(fitted)
    before = model.recommender.artefact
    new = later(OLD, users=40, new_items=2)
    model.update(new, force=True, progress=False)
    after = model.recommender.artefact
    assert after.tree.num_items == before.tree.num_items + 2
    assert after.popularity[-2:].sum() > 0
    assert after.data_fingerprint != before.data_fingerprint
    assert after.training["updates"][0]["rows"] == len(new.frame)
    assert len(model.fitted.update_state().log.users) == 121
    known = [new.frame["item_id"][0]]
    found = model.recommend_histories([known], k=20)
    assert found.height == 20


def test_the_encoder_goes_on_from_where_it_was(fitted: Path) -> None:
    model = DeepTreeRetriever.load(fitted)
    before = model.recommender.artefact
    model.update(later(OLD, users=40), force=True, progress=False)
    after = model.recommender.artefact
    for name in (name for name in before.weights if name.startswith("tower/encoder")):
        moved = np.abs(after.weights[name] - before.weights[name]).max()
        assert 0.0 <= moved < 0.5, name
    assert any(
        not np.array_equal(after.weights[name], before.weights[name])
        for name in before.weights
        if name.startswith("tower/encoder")
    )


def test_an_update_of_the_saved_model_gives_the_bytes_of_one_in_memory(fitted: Path, tmp_path: Path) -> None:
    new = later(OLD, users=40, new_items=3)
    loaded = DeepTreeRetriever.load(fitted).update(new, force=True, progress=False)
    again = DeepTreeRetriever.load(fitted).update(new, force=True, progress=False)
    assert_same_bytes(dict(loaded.recommender.artefact.weights), dict(again.recommender.artefact.weights))
    loaded.save(tmp_path / "shop")
    twice = later(InteractionLog(pl.concat([OLD.frame, new.frame])), users=30, seed=6)
    DeepTreeRetriever.load(tmp_path / "shop").update(twice, force=True, progress=False)


def test_counts_are_those_of_all_rows(fitted: Path) -> None:
    model = DeepTreeRetriever.load(fitted)
    new = later(OLD, users=40)
    model.update(new, force=True, progress=False)
    artefact, state = model.recommender.artefact, model.fitted.update_state()
    everything = np.bincount(state.log.sequences.items, minlength=artefact.tree.num_items)
    held_out = everything - artefact.popularity
    assert (held_out >= 0).all()
    assert 0 < held_out.sum() <= 20 * 4  # half of 40 users, four rows each


def test_what_would_do_worse_is_refused_and_changes_nothing(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = DeepTreeRetriever.load(fitted)
    before = model.recommender.artefact
    monkeypatch.setattr(Verdict, "is_worse", True)
    with pytest.raises(
        UpdateRefused, match=r"nothing was changed: recall@20 on the newest rows of \d+ users: \d\.\d+ before"
    ):
        model.update(later(OLD, users=40), progress=False)
    assert model.recommender.artefact is before
    model.update(later(OLD, users=40), force=True, progress=False)


def test_a_verdict_compares_what_people_did(fitted: Path) -> None:
    model = DeepTreeRetriever.load(fitted)
    model.update(later(OLD, users=40), force=True, progress=False)
    newest = model.recommender.artefact.metrics["newest"]
    assert 0.0 <= newest["recall@20"] <= 1.0


def test_an_update_by_strangers_alone_says_that_nothing_was_compared(fitted: Path) -> None:
    new = later(OLD, users=40).frame.filter(pl.col("user_id") == "stranger")
    events = list[Event]()
    DeepTreeRetriever.load(fitted).update(InteractionLog(new), listen=events.append)
    told = next(event for event in events if isinstance(event, ModelUpdated)).lines
    assert any(line.startswith("not compared with the model in use: no user who was known before") for line in told)


def test_figures_that_differ_little_are_shown_so_that_they_differ() -> None:
    before, after = (Metrics({"recall@20": value}, {}, 3) for value in (0.73117, 0.731157))
    assert str(Verdict(before, after)) == "recall@20 on the newest rows of 3 users: 0.731170 before, 0.731157 now"
    assert "0.7312 before, 0.7313 now" in str(Verdict(before, Metrics({"recall@20": 0.7313}, {}, 3)))


def test_a_log_that_is_not_newer_is_refused(fitted: Path) -> None:
    model = DeepTreeRetriever.load(fitted)
    with pytest.raises(DataError, match="the newest time that the model has learned from"):
        model.update(OLD, progress=False)


def test_new_rows_whose_item_ids_are_texts_are_refused_where_those_of_the_model_are_integers() -> None:
    numbered = OLD.frame.with_columns(pl.col("item_id").str.slice(1).cast(pl.Int64))
    model = DeepTreeRetriever(config_of("memory")).fit(InteractionLog(numbered), progress=False)
    before = model.recommender.artefact
    new = later(InteractionLog(OLD.frame), users=4)
    with pytest.raises(DataError, match=r"Expected item ids like \d+, as the model knows them, got 'a\d+'"):
        model.update(new, force=True, progress=False)
    assert model.recommender.artefact is before


def test_memory_alone_can_be_updated() -> None:
    model = DeepTreeRetriever(config_of("memory")).fit(OLD, progress=False)
    model.update(later(OLD, users=40, new_items=1), force=True, progress=False)
    assert model.recommender.artefact.tree.num_items == 51


def test_attention_is_refused() -> None:
    model = DeepTreeRetriever(config_of("attention", "memory")).fit(OLD, progress=False)
    with pytest.raises(InputError, match="this model also has attention"):
        model.update(later(OLD, users=4), progress=False)


def test_without_its_log_a_model_cannot_go_on(fitted: Path, tmp_path: Path) -> None:
    shutil.copytree(fitted, tmp_path / "copy")
    with pytest.raises(ArtefactError, match=r"copy cannot be updated: the log .* is not kept in .*copy.state"):
        DeepTreeRetriever.load(tmp_path / "copy").update(later(OLD, users=4), progress=False)


def test_an_interrupted_update_goes_on_to_the_same_bytes(fitted: Path, tmp_path: Path) -> None:
    new, whole, stopped = later(OLD, users=60), DeepTreeRetriever.load(fitted), DeepTreeRetriever.load(fitted)
    whole.update(new, force=True, progress=False)

    def listen(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedTraining):
        stopped.update(new, force=True, work_dir=tmp_path / "work", listen=listen)
    stopped.update(new, force=True, work_dir=tmp_path / "work", resume=True, progress=False)
    assert_same_bytes(dict(stopped.recommender.artefact.weights), dict(whole.recommender.artefact.weights))


def test_the_trend_is_weighed_on_the_new_rows_and_is_as_of_the_newest() -> None:
    log = news_log(days=7)
    cut = int(log.frame["timestamp"].min()) + 6 * 86_400  # type: ignore[arg-type]
    before = InteractionLog(log.frame.filter(pl.col("timestamp") < cut))
    model = DeepTreeRetriever(config_of("memory")).fit(before, progress=False)
    memory = Memory.from_arrays(model.recommender.artefact.part("memory"))
    assert memory.weights.trend == 0.0
    assert memory.trend.moment == before.frame["timestamp"].max()
    model.update(log, progress=False)
    memory = Memory.from_arrays(model.recommender.artefact.part("memory"))
    assert memory.weights.trend > 0.0
    assert memory.trend.demand.size == model.recommender.artefact.tree.num_items
    weight, half_life = memory.weights.trend, memory.trend.half_life
    nobody_known = pl.DataFrame([(10**6, 0, cut + 10 * 86_400)], schema=log.frame.schema, orient="row")
    model.update(InteractionLog(nobody_known), progress=False)
    memory = Memory.from_arrays(model.recommender.artefact.part("memory"))
    assert (memory.weights.trend, memory.trend.half_life) == (weight, half_life), "nobody to weigh it on: it stays"


def scrambled(model: DeepTreeRetriever) -> DeepTreeRetriever:
    """The same vectors with all items in random places, so that every subtree leads to its items badly."""
    artefact = model.recommender.artefact
    tree = artefact.tree
    items = np.random.default_rng(0).permutation(tree.num_items).astype(np.int32)
    moved = ItemTree(tree.branching, items)
    table = move_leaf_rows(artefact.weights["tower/node_table"], tree, moved)
    changed = replace(artefact, tree=moved, weights={**artefact.weights, "tower/node_table": table})
    model._fitted = model.fitted.answering_with(Recommender(changed))
    return model


def test_a_subtree_that_fell_is_placed_anew_and_finds_no_less(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the two subtrees below the root the second is said to have fallen; nothing of the first one changes."""
    new, events = later(OLD, users=60), list[Event]()
    stays = scrambled(DeepTreeRetriever.load(fitted))
    monkeypatch.setattr(tower, "fallen_subtrees", lambda *_, **__: np.empty(0, dtype=np.int64))
    stays.update(new, force=True, progress=False)
    monkeypatch.setattr(tower, "fallen_subtrees", lambda *_, **__: np.array([1]))
    model = scrambled(DeepTreeRetriever.load(fitted)).update(new, force=True, listen=events.append)
    before, after = stays.recommender.artefact, model.recommender.artefact
    report = after.training["updates"][0]["replacement"]
    assert (report["subtrees"], report["of"], report["is_kept"]) == (1, 2, True)
    assert report["log_likelihood"][2] > report["log_likelihood"][1]
    assert after.metrics["newest"]["recall@20"] >= before.metrics["newest"]["recall@20"]
    told = next(event for event in events if isinstance(event, ModelUpdated)).lines
    assert any("1 of 2 subtrees" in line and "were placed anew: recall@20" in line for line in told), told
    below = before.tree.ancestors(np.arange(before.tree.num_leaves), 1) == 1
    same = before.tree.item_at_leaf == after.tree.item_at_leaf
    assert same[~below].all()
    assert not same[below].all()
    assert set(after.tree.item_at_leaf[below]) == set(before.tree.item_at_leaf[below])
    history = [str(item) for item in OLD.frame["item_id"][:3]]
    scans = [
        one.recommender.engine.scan(Requests(Histories.of_lists([one.recommender.ids.encode(history)])), k=50)
        for one in (stays, model)
    ]
    np.testing.assert_array_equal(scans[0].items, scans[1].items)
    np.testing.assert_allclose(scans[0].scores, scans[1].scores, rtol=1e-6)


def test_a_placement_that_finds_less_is_not_taken(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def misleading(placed: PlacedVectors, *_: object, **__: object) -> PlacedVectors:
        shuffled = np.random.default_rng(0).permutation(placed.node_table)
        return PlacedVectors(placed.tree, 10.0 * shuffled)

    monkeypatch.setattr(tower, "fallen_subtrees", lambda *_, **__: np.array([0, 1]))
    monkeypatch.setattr(tower, "take_subtrees", misleading)
    model, events = scrambled(DeepTreeRetriever.load(fitted)), list[Event]()
    tree = model.recommender.artefact.tree
    model.update(later(OLD, users=60), force=True, listen=events.append)
    artefact = model.recommender.artefact
    report = artefact.training["updates"][0]["replacement"]
    assert report["recall@20"][1] < report["recall@20"][0]
    assert not report["is_kept"]
    assert artefact.metrics["newest"]["recall@20"] == pytest.approx(report["recall@20"][0], abs=1e-5)
    np.testing.assert_array_equal(artefact.tree.item_at_leaf, tree.item_at_leaf)
    told = next(event for event in events if isinstance(event, ModelUpdated)).lines
    assert any("stay: placed anew, recall@20 would be" in line for line in told)
