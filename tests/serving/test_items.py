"""Items, the tree, the model: what GET answers."""

from pathlib import Path

import numpy as np
import pytest

from beamtree.artefact import Artefact
from tests.serving.conftest import StartServer
from tests.serving.models import save_model
from tests.serving.server import Server


def test_everything_about_one_item(server: Server, artefact: Artefact) -> None:
    item = server.get("/v1/items/107").json
    leaf = int(artefact.tree.leaf_of_item[7])
    assert item["columns"] == {
        "category": "Comedy",
        "title": "Title 7",
        "year": 1957,
        "tags": ["odd", "strange"],
        "price": 1.75,
    }
    assert (item["item_id"], item["leaf"], item["popularity"]) == (107, leaf, artefact.popularity[7])
    assert item["path"][0] == {"level": 0, "node": 0}
    assert item["path"][-1] == {"level": 6, "node": leaf}
    assert len(item["path"]) == 7


def test_search_finds_the_same_then_the_beginning_then_the_inside(server: Server, artefact: Artefact) -> None:
    def found(text: str, limit: int = 100) -> list[int]:
        answer = server.get(f"/v1/items?search={text}&limit={limit}").json
        return [item["item_id"] for item in answer["items"]]

    def popular_first(items: list[int]) -> list[int]:
        return sorted(items, key=lambda item: -artefact.popularity[item - 100])

    assert found("title%201") == [101, *popular_first([*range(110, 120)])]
    assert found("TITLE%2012") == [112]
    assert found("15") == [*popular_first([*range(150, 160)]), 115]
    assert found("155") == [155]
    assert found("le%205") == popular_first([105, *range(150, 160)])
    assert found("nothing%20like%20this") == []
    assert found("%5Bx(") == []
    assert found("", limit=3) == popular_first([*range(100, 160)])[:3]


def test_search_tells_how_many_match_and_returns_the_asked_columns(server: Server) -> None:
    answer = server.get("/v1/items?search=title&limit=2&column=year&column=title").json
    assert answer["matches"] == 60
    assert [item["columns"].keys() for item in answer["items"]] == [{"year", "title"}] * 2


def test_several_items_are_looked_up_by_id_in_the_order_asked(server: Server) -> None:
    answer = server.get("/v1/items?id=131&id=999&id=107&id=x&id=107&column=title").json
    assert [(item["item_id"], item["columns"]) for item in answer["items"]] == [
        (131, {"title": "Title 31"}),
        (107, {"title": "Title 7"}),
        (107, {"title": "Title 7"}),
    ]
    assert (answer["matches"], answer["unknown_ids"]) == (3, ["999", "x"])
    nothing = server.get("/v1/items?id=x").json
    assert (nothing["items"], nothing["unknown_ids"]) == ([], ["x"])
    assert "unknown_ids" not in server.get("/v1/items?search=31").json
    assert len(server.get(f"/v1/items?{'&'.join(['id=107'] * 100)}").json["items"]) == 100
    assert server.get(f"/v1/items?{'&'.join(['id=107'] * 101)}").status == 422
    both = server.get("/v1/items?id=107&id=131&search=TITLE 7".replace(" ", "%20")).json
    assert ([item["item_id"] for item in both["items"]], both["matches"]) == ([107], 1)


def test_items_with_texts_for_ids_are_looked_up_too(start: StartServer, tmp_path: Path) -> None:
    save_model(tmp_path / "model", 60, text_ids=True)
    answer = start(tmp_path / "model").get("/v1/items?id=i%2F131&id=131&id=").json
    assert [item["item_id"] for item in answer["items"]] == ["i/131"]
    assert answer["unknown_ids"] == ["131", ""]


def test_similar_items_by_tree_share_the_deepest_nodes(server: Server, artefact: Artefact) -> None:
    tree = artefact.tree
    answer = server.get("/v1/items/120/similar?k=59&by=tree").json
    assert answer["by_embedding"] is None
    assert {row["item_id"] for row in answer["by_tree"]} == set(range(100, 160)) - {120}
    own = tree.leaf_of_item[20]
    levels = []
    for row in answer["by_tree"]:
        leaf = tree.leaf_of_item[row["item_id"] - 100]
        common = max(level for level in range(7) if tree.ancestors(own, level) == tree.ancestors(leaf, level))
        assert row["common_level"] == common
        levels.append(common)
    assert levels == sorted(levels, reverse=True)
    few = server.get("/v1/items/120/similar?k=5&by=tree").json["by_tree"]
    assert [row["common_level"] for row in few] == levels[:5]


def test_similar_items_by_embedding_have_the_highest_cosine(server: Server, artefact: Artefact) -> None:
    answer = server.get("/v1/items/120/similar?k=7&by=embedding").json
    nodes = np.asarray(artefact.part("attention")["node_table"])
    vectors = nodes[artefact.tree.level_offsets[6] :][artefact.tree.leaf_of_item]
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors[20]
    best = [item for item in np.argsort(-cosines) if item != 20][:7]
    assert [row["item_id"] for row in answer["by_embedding"]] == [item + 100 for item in best]
    assert [row["similarity"] for row in answer["by_embedding"]] == pytest.approx(cosines[best].tolist(), abs=1e-5)
    everything = server.get("/v1/items/120/similar?k=100&by=both").json
    assert len(everything["by_tree"]) == len(everything["by_embedding"]) == 59
    assert everything["by_memory"] is None
    refused = server.get("/v1/items/120/similar?by=memory")
    assert (refused.status, refused.code) == (422, "no_such_part")
    assert "Compare them by embedding" in refused.json["error"]["message"]


def test_a_node_shows_its_children_its_items_and_its_way_up(server: Server, artefact: Artefact) -> None:
    tree = artefact.tree
    node = server.get("/v1/tree/nodes/3/5?sample=4").json
    first, end = (int(bound) for bound in tree.leaf_ranges(5, 3))
    below = (tree.item_at_leaf[first:end] + 100).tolist()
    popular = sorted(below, key=lambda item: -artefact.popularity[item - 100])
    assert (node["leaves"], node["items"], node["is_leaf"]) == (len(below), len(below), False)
    assert [row["item_id"] for row in node["sample"]] == popular[:4]
    assert node["path"] == [{"level": level, "node": 5 >> (3 - level)} for level in range(4)]
    assert [(child["level"], child["node"]) for child in node["children"]] == [(4, 10), (4, 11)]
    assert sum(child["items"] for child in node["children"]) == len(below)
    assert sum(value["count"] for value in node["values"]) == len(below)


def test_root_and_leaf(server: Server, artefact: Artefact) -> None:
    root = server.get("/v1/tree/nodes/0/0").json
    assert (root["items"], root["path"]) == (60, [{"level": 0, "node": 0}])
    leaf = server.get("/v1/tree/nodes/6/17").json
    assert (leaf["is_leaf"], leaf["children"], leaf["leaves"]) == (True, [], 1)
    assert leaf["sample"][0]["item_id"] == artefact.tree.item_at_leaf[17] + 100


def test_the_model_describes_itself(server: Server, artefact: Artefact) -> None:
    model = server.get("/v1/model").json
    assert model["model_version"] == artefact.version
    assert model["tree"]["level_sizes"] == [1, 2, 4, 8, 16, 32, 60]
    assert (model["id_type"], model["items"], model["history_length"]) == ("integer", 60, 7)
    assert model["defaults"] == {"k": 20, "beam": 8, "exclude_seen": True}
    assert model["limits"]["k"] == 1000
    columns = {column["name"]: column for column in model["columns"]}
    assert columns["category"]["values"] == [
        {"value": "Comedy", "count": 20},
        {"value": "Drama", "count": 20},
        {"value": "War", "count": 20},
    ]
    assert columns["tags"] == {"name": "tags", "type": "list", "values": None}
    assert (model["users"], model["events"]) == (True, True)


def test_pages_for_people_and_machines_need_nothing_from_elsewhere(server: Server) -> None:
    docs = server.get("/docs")
    assert docs.headers["content-type"].startswith("text/html")
    assert b"http://" not in docs.body
    assert b"https://" not in docs.body
    assert "/v1/recommend" in server.get("/openapi.json").json["paths"]
    assert docs.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in server.get("/v1/model", Origin="http://elsewhere.example").headers


def test_metrics_count_requests_and_name_the_model(server: Server, artefact: Artefact) -> None:
    line = 'beamtree_requests_total{method="GET",route="/healthz",status="200"}'
    before = server.metric(line)
    assert server.get("/healthz").json == {"status": "ok"}
    assert server.metric(line) == before + 1
    assert server.metric(f'beamtree_model_info{{version="{artefact.version}"}}') == 1
    server.recommend(history=[100])
    assert server.metric("beamtree_search_seconds_count") >= 1
    assert server.metric('beamtree_request_seconds_bucket{le="10.0",route="/v1/recommend"}') >= 1
    assert server.metric('beamtree_queue_depth{pool="searches"}') == 0


def test_the_page_is_served_and_may_load_nothing_from_elsewhere(server: Server) -> None:
    page = server.get("/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert server.get("/page.js").status == 200
    for outside in ("/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/page/../../app.py", "//etc/passwd"):
        assert server.get(outside).status == 404


@pytest.mark.parametrize("path", ["/", "/page.js"])
def test_a_browser_asks_again_and_gets_the_file_only_when_it_has_changed(server: Server, path: str) -> None:
    first = server.get(path)
    assert first.headers["cache-control"] == "no-cache"
    again = server.get(path, **{"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert (again.headers["etag"], again.headers["cache-control"]) == (first.headers["etag"], "no-cache")
    assert server.get(path, **{"If-None-Match": '"another"'}).body == first.body


def test_upper_branches_are_named_by_what_lives_there(server: Server, artefact: Artefact) -> None:
    answer = server.get("/v1/tree/branches?per_level=4").json
    assert [(branch["level"], branch["node"]) for branch in answer["branches"]] == [
        (1, 0),
        (1, 1),
        *((2, node) for node in range(4)),
    ]
    assert sum(branch["items"] for branch in answer["branches"][:2]) == artefact.tree.num_items
    assert all(branch["name"] for branch in answer["branches"])
    assert server.get("/v1/tree/branches?per_level=0").status == 422
    node = server.get("/v1/tree/nodes/1/0").json
    assert [node["name"], *(child["name"] for child in node["children"])] == [
        answer["branches"][place]["name"] for place in (0, 2, 3)
    ]
