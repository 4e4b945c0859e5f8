"""/docs: the interface for people, made from the OpenAPI document."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from playwright.sync_api import Page, expect

from tests.page.conftest import Visit
from tests.page.test_catalogues import save_items
from tests.serving.server import Server

Start = Callable[[Path], Server]


def card(page: Page, path: str) -> Any:
    return page.locator(".route", has=page.locator("summary > code", has_text=re.compile(f"^{re.escape(path)}$")))


def test_the_main_route_shows_its_body_field_by_field(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="docs")
    recommend = card(page, "/v1/recommend")
    expect(recommend).to_have_attribute("open", "")
    schema = site.get("/openapi.json").json["components"]["schemas"]["Recommend"]
    shown = recommend.locator(".takes dt").all_inner_texts()
    assert [name for name in shown if name in schema["properties"]] == list(schema["properties"])
    assert {"allow.ids", "allow.where", "allow.where[].column", "allow.where[].at_most", "requests"} <= set(shown)
    fields = dict(zip(shown, recommend.locator(".takes dd").all_inner_texts(), strict=True))
    assert "list of item ids (integer); at most 5,000" in fields["history"]
    assert "integer, 1 to 1,000" in fields["k"]
    assert "default 20" in fields["k"]
    assert "integer, 1 to 2,000" in fields["beam"]
    assert '"report", "ignore" or "refuse"' in fields["unknown"]
    assert "list of booleans, numbers or texts; at most 1,000" in fields["allow.where[].one_of"]
    assert not any(re.search(r"\b(any|anything|undefined|null)\b", text.splitlines()[0]) for text in fields.values())
    expect(recommend.locator(".takes")).to_contain_text("Exactly one of these is required: history or user_id.")


def test_the_example_of_the_document_is_there_and_works(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="docs")
    recommend = card(page, "/v1/recommend")
    body = site.get("/openapi.json").json["paths"]["/v1/recommend"]["post"]["requestBody"]["content"]
    example = body["application/json"]["example"]
    text = recommend.get_by_label("Body of the request")
    assert json.loads(text.input_value()) == example
    recommend.get_by_role("button", name="Send").click()
    expect(recommend.locator(".status")).to_contain_text("200")
    answer = json.loads(recommend.get_by_label("Answer").inner_text())
    assert [item["item_id"] for item in answer["results"][0]["items"]] == [
        item["item_id"] for item in site.recommend(**example)["items"]
    ]
    text.fill('{"history": [], "kk": 3}')
    recommend.get_by_role("button", name="Send").click()
    expect(recommend.locator(".status")).to_contain_text("422")
    expect(recommend.get_by_label("Answer")).to_contain_text("there is no such field")


def test_other_routes_are_tried_with_their_parameters(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="docs#get-v1-items-item-id-similar")
    similar = card(page, "/v1/items/{item_id}/similar")
    expect(similar).to_have_attribute("open", "")
    similar.get_by_label("k", exact=True).fill("2")
    similar.get_by_role("button", name="Send").click()
    expect(similar.locator(".status")).to_contain_text("200")
    assert len(json.loads(similar.get_by_label("Answer").inner_text())["by_tree"]) == 2
    node = card(page, "/v1/tree/nodes/{level}/{node}")
    node.locator("summary").first.click()
    node.get_by_role("button", name="Send").click()
    expect(node.locator(".status")).to_contain_text("200")


@pytest.mark.parametrize("viewport", [{"width": 1440, "height": 900}, {"width": 390, "height": 844}])
def test_nothing_is_wider_than_the_screen(site: Server, visit: Visit, viewport: dict[str, int]) -> None:
    page = visit(site, fragment="docs", viewport=viewport)
    for summary in page.locator(".route > summary").all()[1:]:
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_the_example_fits_a_catalogue_without_titles(tmp_path: Path, start: Start, visit: Visit) -> None:
    save_items(tmp_path / "model", pl.DataFrame({"item_id": [f"<i>{number}" for number in range(40)]}))
    server = start(tmp_path / "model")
    page = visit(server, fragment="docs")
    recommend = card(page, "/v1/recommend")
    assert json.loads(recommend.get_by_label("Body of the request").input_value())["columns"] == []
    recommend.get_by_role("button", name="Send").click()
    expect(recommend.locator(".status")).to_contain_text("200")
    assert page.locator("main i").count() == 0
