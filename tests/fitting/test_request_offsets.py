"""Features of users and contexts enter the tower: what they decide is learned, recommended, evaluated and updated."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.data.request_features import RequestFeatures
from beamtree.errors import InputError
from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.protocol import evaluate
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.request import Recommendations, RecommendOptions, RecommendRequest
from tests.cli.beamtree_command import Command
from tests.small import small_config

ITEMS = 30
"""Of either group: a0, a1, ..., b0, b1, ..."""


def log_by_device(*, first_time: int = 0, users: int = 60, length: int = 12) -> pl.DataFrame:
    """On the phone people meet items of one group, on the desktop of the other; what came before tells nothing."""
    generator = np.random.default_rng(first_time)
    rows = []
    for user in range(users):
        for place in range(length):
            group = "ab"[generator.integers(2)]
            device = {"a": "phone", "b": "desktop"}[group]
            rows.append((f"u{user:02}", f"{group}{generator.integers(ITEMS)}", first_time + place, device))
    return pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "device"], orient="row")


def log_by_city() -> tuple[pl.DataFrame, pl.DataFrame]:
    """A log of two cities that like different items, and the table of its users."""
    generator = np.random.default_rng(1)
    rows = [
        (f"u{user:02}", f"{'ab'[user % 2]}{generator.integers(ITEMS)}", place)
        for user in range(60)
        for place in range(12)
    ]
    log = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")
    cities = ["Oslo", "Rome"] * 30
    return log, pl.DataFrame({"user_id": [f"u{user:02}" for user in range(60)], "city": cities})


def fitted(
    table: pl.DataFrame, users: pl.DataFrame | None = None, *, encoder: str = "gru", log: dict[str, Any] | None = None
) -> DeepTreeRetriever:
    config = small_config(
        data={"min_interactions": 2, "min_held_out": 2, "holdout": "last"},
        log=log or {},
        model={"parts": ("tower", "memory"), "weights": {"repeats": 0.0}},
        estimator={
            "width": 16,
            "batch_positions": 64,
            "learning_rate": 0.02,
            "epochs": 12.0,
            "patience": 8,
            "encoder": encoder,
        },
        retrieval={"exclude_seen": False, "beam_width": 32},
    )
    return DeepTreeRetriever(config).fit(table, users=users, progress=False)


@pytest.fixture(scope="module")
def by_device() -> DeepTreeRetriever:
    return fitted(log_by_device(), log={"features": {"context.device": "category"}})


@pytest.fixture(scope="module")
def by_city() -> DeepTreeRetriever:
    log, users = log_by_city()
    return fitted(log, users)


def asked(model: DeepTreeRetriever, request: RecommendRequest) -> Recommendations:
    return model.recommender.recommend([request])[0]


def groups(answer: Recommendations) -> str:
    return "".join(str(item)[0] for item in answer.items)


EIGHT = RecommendOptions(k=8)


@pytest.mark.parametrize("history", [["a1", "b2", "a3"], ["b5"], []])
def test_the_context_decides(by_device: DeepTreeRetriever, history: list[str]) -> None:
    for device, group in (("phone", "a"), ("desktop", "b")):
        request = RecommendRequest(history=history, context={"device": device}, options=EIGHT)
        assert groups(asked(by_device, request)) == group * 8


def test_held_out_users_are_asked_in_the_context_of_what_is_held_out(by_device: DeepTreeRetriever) -> None:
    """Of 60 items an answer of 20 holds two thirds of the right half, or a third of everything."""
    search = BeamSearch(by_device.recommender.engine, 32)
    recalls = [
        evaluate(search, dataset, by_device.held_out(), config=by_device.config, cutoffs=(20,))["recall@20"]
        for dataset in (by_device.dataset, by_device.dataset.reading(RequestFeatures()))
    ]
    assert recalls[0] > 1.4 * recalls[1]
    assert by_device.evaluate(baselines="none")["beam"]["recall@20"] == recalls[0]


def test_users_with_features_and_no_history_get_what_their_group_likes(by_city: DeepTreeRetriever) -> None:
    for city, group in (("Oslo", "a"), ("Rome", "b")):
        answer = asked(by_city, RecommendRequest(history=[], user_features={"city": city}, options=EIGHT))
        assert groups(answer) == group * 8
        assert answer.source == "beam"
        assert answer.history_used == 0
    for nothing in ({}, {"city": None}):
        answer = asked(by_city, RecommendRequest(history=[], user_features=nothing, options=EIGHT))
        assert answer.source == "popularity"
        assert set(answer.scores) == {None}


def test_tables_and_histories_are_asked_with_features(by_city: DeepTreeRetriever, tmp_path: Path) -> None:
    """A fitted model knows its user table; a loaded one is given it."""
    cities = [{"city": "Oslo"}, {"city": "Rome"}]
    found = by_city.recommend_histories([[], []], user_features=cities, k=6)
    assert ["".join(sorted({str(item)[0] for item in part})) for part in _lists(found, "request")] == ["a", "b"]
    with pytest.raises(InputError, match="Expected user_features for each of 2 histories, got 1"):
        by_city.recommend_histories([[], []], user_features=cities[:1])
    log, users = log_by_city()
    known = by_city.recommend(users=["u00", "u01"], k=6)
    by_city.save(tmp_path / "model")
    loaded = DeepTreeRetriever.load(tmp_path / "model")
    assert loaded.recommend(users=["u00", "u01"], interactions=log, user_table=users, k=6).equals(known)
    assert not loaded.recommend(users=["u00", "u01"], interactions=log, k=6)["score"].equals(known["score"])
    pairs = list(known.select("user_id", "item_id").iter_rows())
    scores = loaded.score(pairs, interactions=log, user_table=users)["score"]
    np.testing.assert_allclose(scores, known["score"], rtol=1e-6)
    explained = by_city.explain([], "a1", user_features={"city": "Oslo"})
    assert explained.score > by_city.explain([], "a1", user_features={"city": "Rome"}).score
    beam = by_city.evaluate(baselines="none")["beam"]
    assert loaded.evaluate(log, users=users, baselines="none")["beam"] == beam


def _lists(table: pl.DataFrame, key: str) -> list[list[str]]:
    return [part["item_id"].to_list() for part in table.partition_by(key, maintain_order=True)]


@pytest.mark.parametrize("encoder", ["gru", "self-attention"])
def test_an_update_goes_on_learning_with_features(encoder: str, tmp_path: Path) -> None:
    """Devices change sides: what the tower makes of them moves that way."""
    sides = {"phone": "desktop", "desktop": "phone"}
    old, new = log_by_device(), log_by_device(first_time=100).with_columns(pl.col("device").replace_strict(sides))
    model = fitted(old, log={"features": {"context.device": "category"}}, encoder=encoder)
    model.save(tmp_path / "model")
    before = preference(model)
    updated = DeepTreeRetriever.load(tmp_path / "model").update(new, force=True, progress=False)
    assert preference(updated) < before
    tables = [one.recommender.artefact.weights["tower/offset.context.embedding"] for one in (model, updated)]
    assert tables[0].shape == tables[1].shape
    np.testing.assert_array_equal(tables[1][3:], 0.0, err_msg="rows of values that nobody has")


def preference(model: DeepTreeRetriever) -> float:
    """How much more the items of one group score on the phone than on the desktop."""
    items = [f"a{number}" for number in range(ITEMS)]
    phone, desktop = (
        np.mean([one.score for one in model.recommender.explain([], items, context={"device": device})])
        for device in ("phone", "desktop")
    )
    return float(phone - desktop)


def test_a_table_of_which_nothing_is_read_changes_no_byte() -> None:
    log, users = log_by_city()
    plain, described = fitted(log), fitted(log, users.select("user_id"))
    for name, array in plain.recommender.artefact.weights.items():
        assert array.tobytes() == described.recommender.artefact.weights[name].tobytes()
    assert plain.recommender.artefact.weights.keys() == described.recommender.artefact.weights.keys()
    assert not any(name.startswith("tower/offset") for name in plain.recommender.artefact.weights)


def test_the_same_seed_gives_the_same_bytes(by_city: DeepTreeRetriever) -> None:
    log, users = log_by_city()
    again = fitted(log, users).recommender.artefact.weights
    for name, array in by_city.recommender.artefact.weights.items():
        assert array.tobytes() == again[name].tobytes(), name


def test_the_command_asks_with_features(
    by_device: DeepTreeRetriever,
    by_city: DeepTreeRetriever,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    beamtree = Command(monkeypatch, capsys)
    by_device.save(tmp_path / "devices")
    by_city.save(tmp_path / "cities")
    log, users = log_by_city()
    log.write_csv(tmp_path / "log.csv")
    users.write_csv(tmp_path / "users.csv")

    def found(model: str, *options: str) -> set[str]:
        done = beamtree("recommend", str(tmp_path / model), "-k", "6", "--out", str(tmp_path / "found.csv"), *options)
        assert done.code == 0, done.err
        return {item[0] for item in pl.read_csv(tmp_path / "found.csv")["item_id"]}

    for device, group in (("phone", "a"), ("desktop", "b")):
        assert found("devices", "--history", "a1,b2", "--context", f"device={device}") == {group}
    assert found("cities", "--history", "unheard-of", "--user-feature", "city=Rome") == {"b"}
    of_log = ("--log", str(tmp_path / "log.csv"), "--users", "u00")
    assert found("cities", *of_log, "--user-table", str(tmp_path / "users.csv")) == {"a"}
    for wrong, message in (
        (("--history", "a1", "--user-feature", "town=Oslo"), "there is no column 'town'; the model reads city"),
        (("--history", "a1", "--user-feature", "city"), "--user-feature takes COLUMN=VALUE"),
        ((*of_log, "--user-feature", "city=Oslo"), "--user-feature is about one person"),
        (("--history", "a1", "--user-table", str(tmp_path / "users.csv")), "--user-table are about a log"),
    ):
        refused = beamtree("recommend", str(tmp_path / "cities"), *wrong)
        assert refused.code == 1
        assert message in refused.message


def test_scores_of_chosen_items_follow_the_features(by_device: DeepTreeRetriever, by_city: DeepTreeRetriever) -> None:
    """As recommendations do, to the very numbers; without a history too, where features say something."""
    around, item = {"device": "phone"}, "a1"
    best = by_device.recommend_histories([["a1", "b2"]], k=8, context=[around])
    scored = by_device.score_histories([["a1", "b2"]], [best["item_id"].to_list()], context=[around])
    np.testing.assert_allclose(scored["score"], best["score"], rtol=1e-5)
    log, users = log_by_city()
    asked: list[list[str]] = [[], [], []]
    wanted = [[item, "b1"]] * 3
    cities = by_city.score_histories(asked, wanted, user_features=[{"city": "Oslo"}, {"city": "Rome"}, {}])["score"]
    assert cities[0] - cities[1] > cities[2] - cities[3]
    assert cities[4:].null_count() == 2
    pairs = [("u00", item), ("u00", "b1")]
    plain = by_city.score(pairs, interactions=log, user_table=users.tail(1))["score"]
    known, moved = (
        by_city.score(pairs, interactions=log, user_table=users.with_columns(city=pl.lit(city)))["score"]
        for city in ("Oslo", "Rome")
    )
    assert known[0] - known[1] > plain[0] - plain[1] > moved[0] - moved[1]
    with pytest.raises(InputError, match="Expected context for each of 1 histories, got one for all"):
        by_device.score_histories([["a1"]], [[item]], context=around)  # type: ignore[arg-type]
    on_phone, on_desktop = (
        by_device.score(pairs, interactions=log, context={"device": device})["score"] for device in ("phone", "desktop")
    )
    assert on_phone[0] - on_phone[1] > on_desktop[0] - on_desktop[1]


def test_the_commands_score_and_inspect_with_features(
    by_city: DeepTreeRetriever,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    beamtree = Command(monkeypatch, capsys)
    model, log_file, table, out = (str(tmp_path / name) for name in ("cities", "log.csv", "users.csv", "scored.csv"))
    by_city.save(model)
    log, users = log_by_city()
    log.write_csv(log_file)
    users.write_csv(table)

    def scores(*options: str) -> list[float]:
        done = beamtree("score", model, "--out", out, *options)
        assert done.code == 0, done.err
        return pl.read_csv(out)["score"].to_list()

    of_oslo, of_rome = (
        scores("--history", "unheard-of", "--item", "a1,b1", "--user-feature", f"city={city}")
        for city in ("Oslo", "Rome")
    )
    assert of_oslo[0] - of_oslo[1] > of_rome[0] - of_rome[1]
    pl.DataFrame({"user_id": ["u00", "u00"], "item_id": ["a1", "b1"]}).write_csv(tmp_path / "pairs.csv")
    of_log = ("--pairs", str(tmp_path / "pairs.csv"), "--log", log_file)
    assert scores(*of_log, "--user-table", table) != scores(*of_log)
    for wrong, message in (
        (("--history", "a1", "--item", "b1", "--user-feature", "town=Oslo"), "there is no column 'town'"),
        (("--history", "a1", "--item", "b1", "--user-table", table), "--user-table is about the users of a log"),
        ((*of_log, "--user-feature", "city=Oslo"), "--user-feature is about one person"),
    ):
        refused = beamtree("score", model, *wrong)
        assert refused.code == 1
        assert message in refused.message
    assert "features of the users: city (2 values)" in beamtree("inspect", model).out
    assert "--users" in beamtree("inspect", model, "--users", table).message, "that is about a log"
    found = []
    for options in ((), ("--users", table)):
        report = tmp_path / "report.html"
        done = beamtree("inspect", model, "--log", log_file, "--max-users", "20", "--out", str(report), *options)
        assert done.code == 0, done.err
        assert ("give their table with --users" in done.message) == (not options)
        found.append(report.with_suffix(".json").read_text())
    assert found[0] != found[1]
