"""POST /v1/recommend against the engine itself, over a real connection."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import Artefact, save_artefact
from beamtree.data.requests import Histories, Requests
from beamtree.errors import ArtefactError
from beamtree.model.memory import Memory
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.scorers import build_scorer
from beamtree.retrieval.similar import SimilarItems
from beamtree.serving.loaded_model import load_model
from tests.retrieval.numpy_scorer import NumpyScorer
from tests.serving.conftest import StartServer
from tests.serving.models import save_model
from tests.serving.server import Server

HISTORY = [100, 131, 117, 159]


def expected_items(
    artefact: Artefact,
    history: list[int],
    *,
    k: int,
    beam: int = 8,
    allowed: Any = None,
    excluded: list[int] | None = None,
) -> list[int]:
    """What the engine itself returns, in raw ids; item 100 is dense item 0."""
    engine = Engine(build_scorer(artefact.weights, artefact.tree, config=artefact.config), artefact.tree)
    dense, without = (
        Histories.of_lists([np.array(items, dtype=np.int32) - 100])
        for items in (history, history if excluded is None else excluded)
    )
    asked = Requests(dense, excluded=without.flattened(), allowed=allowed)
    found = engine.search(asked, k=k, beam_width=beam)
    return [int(item) + 100 for item in found.items[0] if item >= 0]


def ids(result: dict[str, Any]) -> list[int]:
    return [item["item_id"] for item in result["items"]]


def test_one_history_gets_what_the_engine_finds(server: Server, artefact: Artefact) -> None:
    answer = server.post("/v1/recommend", {"history": HISTORY, "k": 5})
    body = answer.json
    [result] = body["results"]
    assert body["model_version"] == artefact.version
    assert body["milliseconds"].keys() == {"queue", "search"}
    assert ids(result) == expected_items(artefact, HISTORY, k=5)
    assert [item["rank"] for item in result["items"]] == [1, 2, 3, 4, 5]
    scores = [item["score"] for item in result["items"]]
    assert scores == sorted(scores, reverse=True)
    assert (result["source"], result["history_used"], result["unknown_ids"]) == ("beam", 4, [])
    assert "columns" not in result["items"][0]
    assert "path" not in result["items"][0]


def test_many_different_requests_get_their_own_answers(server: Server, artefact: Artefact) -> None:
    drama = {"allow": {"where": [{"column": "category", "one_of": ["Drama"]}]}}
    requests: list[dict[str, Any]] = [
        {"history": HISTORY, "k": 5},
        {"history": [], "k": 2},
        {"history": HISTORY, "k": 5, **drama},
        {"history": HISTORY[::-1], "k": 5},
        {"history": HISTORY, "k": 3, "beam": 40},
    ]
    answer = server.post("/v1/recommend", {"requests": requests})
    results = answer.json["results"]
    is_drama = np.arange(60) % 3 == 0
    assert ids(results[0]) == expected_items(artefact, HISTORY, k=5)
    assert results[1]["source"] == "popularity"
    assert ids(results[2]) == expected_items(artefact, HISTORY, k=5, allowed=is_drama)
    assert ids(results[3]) == expected_items(artefact, HISTORY[::-1], k=5)
    assert ids(results[4]) == expected_items(artefact, HISTORY, k=3, beam=40)


def test_seen_and_excluded_items_stay_away_and_may_come_back(server: Server, artefact: Artefact) -> None:
    everything = server.recommend(history=HISTORY, k=60, exclude_seen=False)
    assert sorted(ids(everything)) == list(range(100, 160))
    assert sorted(ids(server.recommend(history=HISTORY, k=60))) == sorted(set(range(100, 160)) - set(HISTORY))
    best = ids(everything)[:3]
    without = server.recommend(history=HISTORY, k=60, exclude_seen=False, exclude=best)
    assert ids(without) == expected_items(artefact, HISTORY, k=60, excluded=best)
    assert not set(best) & set(ids(without))


@pytest.mark.parametrize(
    ("allow", "condition"),
    [
        ({"ids": [105, 110, 115]}, pl.col("item_id").is_in([105, 110, 115])),
        ({"where": [{"column": "category", "one_of": ["War", "Comedy"]}]}, pl.col("category") != "Drama"),
        ({"where": [{"column": "year", "at_least": 1960, "at_most": 1970}]}, pl.col("year").is_between(1960, 1970)),
        ({"where": [{"column": "year", "at_least": 1960.5}]}, pl.col("year") > 1960),
        ({"where": [{"column": "year", "one_of": [1951, 1952.0]}]}, pl.col("year").is_in([1951, 1952])),
        ({"where": [{"column": "tags", "one_of": ["strange", "rare"]}]}, pl.col("item_id") % 2 == 1),
        ({"where": [{"column": "tags", "contains": "even"}]}, pl.col("item_id") % 2 == 0),
        ({"where": [{"column": "title", "contains": "itle 1"}]}, pl.col("title").str.contains("itle 1")),
        ({"where": [{"column": "price", "at_most": 5}]}, (pl.col("price") <= 5).fill_null(False)),
        ({"where": [{"column": "category", "at_least": "Drama", "at_most": "E"}]}, pl.col("category") == "Drama"),
        ({"where": [{"column": "category", "one_of": ["none"]}]}, pl.lit(False)),
        (
            {"ids": [100, 101, 102, 103], "where": [{"column": "category", "one_of": ["Drama"]}]},
            pl.col("item_id").is_in([100, 103]),
        ),
    ],
)
def test_only_allowed_items_come_back_and_all_of_them_can(
    server: Server, artefact: Artefact, allow: dict[str, Any], condition: pl.Expr
) -> None:
    allowed = artefact.item_table.filter(condition)["item_id"].to_list()
    result = server.recommend(history=HISTORY, k=60, exclude_seen=False, allow=allow)
    assert sorted(ids(result)) == allowed
    popular = server.recommend(history=[], k=60, allow=allow)
    assert sorted(ids(popular)) == allowed


def test_a_cold_start_gets_popular_items_or_a_refusal(server: Server, artefact: Artefact) -> None:
    by_popularity = (np.argsort(-artefact.popularity) + 100).tolist()
    before = server.metric("beamtree_fallbacks_total")
    result = server.recommend(history=[1, 2], k=4, exclude=by_popularity[:1], columns=["title"])
    assert ids(result) == by_popularity[1:5]
    assert [item["score"] for item in result["items"]] == [None] * 4
    assert (result["source"], result["unknown_ids"]) == ("popularity", [1, 2])
    assert server.metric("beamtree_fallbacks_total") == before + 1
    refused = server.post("/v1/recommend", {"history": [1, 2], "fallback": "error"})
    assert (refused.status, refused.code) == (422, "no_known_items")
    assert server.post("/v1/recommend", {"history": [1, 2], "fallback": "error"}).code == "no_known_items"
    assert server.post("/v1/recommend", {"history": [1, 2], "fallback": "nothing"}).code == "invalid_request"


def test_unknown_ids_are_reported_passed_over_or_refused(server: Server) -> None:
    request = {"history": [100, 7], "exclude": [8], "allow": {"ids": [9, 120]}}
    assert server.recommend(**request)["unknown_ids"] == [7, 8, 9]
    assert "unknown_ids" not in server.recommend(**request, unknown="ignore")
    refused = server.post("/v1/recommend", request | {"unknown": "refuse"})
    assert (refused.status, refused.code) == (422, "unknown_ids")
    assert refused.json["error"]["details"] == [7, 8, 9]


def test_columns_come_as_asked(server: Server) -> None:
    result = server.recommend(history=HISTORY, k=3, columns=["title", "tags", "price"])
    for item in result["items"]:
        number = item["item_id"] - 100
        assert item["columns"] == {
            "title": f"Title {number}",
            "tags": ["even"] if number % 2 == 0 else ["odd", "strange"],
            "price": None if number % 5 == 0 else number / 4,
        }


def test_users_of_the_log_are_known_by_name(server: Server, artefact: Artefact) -> None:
    result = server.recommend(user_id=1, k=5)
    assert ids(result) == expected_items(artefact, [100, 101, 102], k=5)
    assert (result["user_known"], result["history_used"]) == (True, 3)
    in_order_of_time = server.recommend(user_id=7, k=5)
    assert ids(in_order_of_time) == expected_items(artefact, [130, 140], k=5)
    only_unknown_items = server.recommend(user_id=2, k=5)
    assert (only_unknown_items["source"], only_unknown_items["user_known"]) == ("popularity", True)
    nobody = server.recommend(user_id=3, k=5)
    assert (nobody["source"], nobody["user_known"]) == ("popularity", False)
    refused = server.post("/v1/recommend", {"user_id": 3, "unknown": "refuse"})
    assert (refused.status, refused.code) == (422, "unknown_user")


def test_events_become_part_of_the_history_at_once(server: Server, artefact: Artefact) -> None:
    events = [{"user_id": 50, "item_id": 120}, {"user_id": 50, "item_id": 121, "timestamp": 5.5}]
    answer = server.post("/v1/events", {"events": events})
    assert (answer.status, answer.json) == (200, {"accepted": 2, "unknown_ids": []})
    assert ids(server.recommend(user_id=50, k=5)) == expected_items(artefact, [120, 121], k=5)
    more = [{"user_id": 51, "item_id": 5}, {"user_id": 51, "item_id": 122}]
    assert server.post("/v1/events", {"events": more}).json == {"accepted": 2, "unknown_ids": [5]}
    assert server.recommend(user_id=51, k=5)["history_used"] == 1
    refused = server.post("/v1/events", {"events": [*events, {"user_id": 52, "item_id": 6}], "unknown": "refuse"})
    assert (refused.status, refused.code) == (422, "unknown_ids")
    assert server.recommend(user_id=52, k=5)["user_known"] is False


def test_an_explanation_shows_the_beam_and_every_path(server: Server, artefact: Artefact) -> None:
    wish: dict[str, Any] = {"history": HISTORY, "k": 4, "beam": 5}
    result = server.recommend(**wish, explain=True)
    assert ids(result) == ids(server.recommend(**wish))
    tree, beam = artefact.tree, result["beam"]
    width = 5 + len(HISTORY)
    assert (beam["width"], beam["exact"]) == (width, False)
    assert [level["level"] for level in beam["levels"]] == [4, 5, 6]
    asked = Requests(Histories.of_lists([[item - 100 for item in HISTORY]]))
    judge = NumpyScorer(artefact.weights, tree, config=artefact.config).prepare(asked)

    def score_nodes(level: int, nodes: Any) -> Any:
        return judge.scores(0, level, nodes)

    first = beam["levels"][0]
    scores = score_nodes(4, np.arange(16))
    assert (first["size"], first["scored"], first["kept"]) == (16, 16, width)
    assert first["nodes"] == np.argsort(-scores, kind="stable")[:width].tolist()
    assert first["dropped"] == np.argsort(-scores, kind="stable")[width:].tolist()
    assert first["dropped_scores"] == pytest.approx(np.sort(scores)[::-1][width:].tolist(), rel=1e-5)
    assert first["cutoff"] == pytest.approx(np.sort(scores)[-width], rel=1e-5)
    assert beam["levels"][-1]["nodes"] == [tree.leaf_of_item[item - 100] for item in ids(result)]
    for item in result["items"]:
        leaf = tree.leaf_of_item[item["item_id"] - 100]
        assert [(step["level"], step["node"]) for step in item["path"]] == [
            (level, tree.ancestors(leaf, level)) for level in range(1, tree.height + 1)
        ]
        for step in item["path"]:
            assert step["score"] == pytest.approx(
                float(score_nodes(step["level"], np.array([step["node"]]))[0]), rel=1e-4, abs=1e-5
            )
            assert step["kept"]
            assert step["searched"] == (step["level"] >= 4)
            if step["searched"]:
                level = beam["levels"][step["level"] - 4]
                assert level["nodes"][step["rank"] - 1] == step["node"]
                assert step["cutoff"] == level["cutoff"] <= step["score"]
        assert item["path"][-1]["score"] == pytest.approx(item["score"])
        assert item["path"][-1]["rank"] == item["rank"]


def test_an_explanation_tells_what_each_part_gave(server: Server) -> None:
    result = server.recommend(history=HISTORY, k=3, explain=True)
    for item in result["items"]:
        assert item["parts"] == {"attention": pytest.approx(item["score"], rel=1e-4)}
        assert item["because_of"] == []
    assert "parts" not in server.recommend(history=HISTORY, k=3)["items"][0]


def test_an_explanation_of_a_search_that_scores_everything(server: Server) -> None:
    result = server.recommend(history=HISTORY, k=2, explain=True, allow={"ids": [120, 121, 122]})
    assert result["beam"]["exact"] is True
    [level] = result["beam"]["levels"]
    assert (level["level"], level["scored"], level["kept"], len(level["dropped"])) == (6, 3, 2, 1)
    nothing = server.recommend(history=HISTORY, k=2, explain=True, allow={"ids": []})
    assert nothing["items"] == []
    assert nothing["beam"]["levels"][0]["cutoff"] is None


def test_popular_items_have_no_path(server: Server) -> None:
    result = server.recommend(history=[], k=2, explain=True)
    assert result["source"] == "popularity"
    assert "beam" not in result


def test_a_model_of_counted_memory_alone_is_served(start: StartServer, tmp_path: Path) -> None:
    artefact = save_model(tmp_path / "model", 60, parts=("memory",))
    server = start(tmp_path / "model")
    result = server.recommend(history=HISTORY, k=5, explain=True)
    assert ids(result) == expected_items(artefact, HISTORY, k=5) == ids(server.recommend(history=HISTORY, k=5))
    memory = Memory.from_arrays(artefact.part("memory"))
    for item in result["items"]:
        assert item["parts"] == {"memory": pytest.approx(item["score"], rel=1e-4)}
        reasons = memory.reasons(np.array(HISTORY, dtype=np.int32) - 100, item["item_id"] - 100)[:5]
        assert item["because_of"] == [
            {
                "item_id": reason.item + 100,
                "title": f"Title {reason.item}",
                "strength": pytest.approx(reason.strength),
                "part": "memory",
            }
            for reason in reasons
        ]
    assert any(item["because_of"] for item in result["items"])
    similar = server.get("/v1/items/120/similar?k=3").json
    assert similar["by_embedding"] is None
    followers, strengths = SimilarItems(artefact).by_memory(20, count=3)
    assert [row["item_id"] for row in similar["by_memory"]] == (followers + 100).tolist()
    assert [row["strength"] for row in similar["by_memory"]] == pytest.approx(strengths.tolist())
    [transitions] = memory.kinds
    assert server.get("/v1/model").json["history_length"] == transitions.depth


def test_a_model_with_parts_of_its_own_is_refused_and_the_message_says_why(tmp_path: Path) -> None:
    artefact = save_model(tmp_path / "model", 60)
    save_artefact(tmp_path / "model", replace(artefact, weights={**artefact.weights, "taste/bias": np.zeros(3)}))
    with pytest.raises(ArtefactError, match=r"does not fit together: .*does not know: taste.*parts="):
        load_model(tmp_path / "model")


def test_a_model_with_a_tower_is_explained_part_by_part(start: StartServer, tmp_path: Path) -> None:
    artefact = save_model(tmp_path / "model", 60, parts=("memory", "tower"))
    server = start(tmp_path / "model")
    result = server.recommend(history=HISTORY, k=5, explain=True)
    recommender = Recommender(artefact)
    for item in result["items"]:
        [explained] = recommender.explain(HISTORY, [item["item_id"]])
        assert item["parts"] == {part: pytest.approx(given, rel=1e-4) for part, given in explained.parts.items()}
        assert sum(item["parts"].values()) == pytest.approx(item["score"], rel=1e-4)
        assert [reason["item_id"] for reason in item["because_of"]] == [one.item_id for one in explained.because_of]
    assert {reason["part"] for item in result["items"] for reason in item["because_of"]} == {"memory", "tower"}


def test_a_tower_says_how_much_of_a_history_it_reads(start: StartServer, tmp_path: Path) -> None:
    save_model(tmp_path / "model", 60, parts=("tower",))
    assert start(tmp_path / "model").get("/v1/model").json["history_length"] == 6
