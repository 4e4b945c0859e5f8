"""Item tables of all kinds: hostile titles, text ids, huge ids, neither titles nor categories."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
from playwright.sync_api import expect

from beamtree.artefact import save_artefact
from tests.page.conftest import Visit
from tests.page.screen import add, liked, recommended, search_box, settle, suggestions
from tests.serving.models import random_artefact
from tests.serving.server import Server

HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
START = Callable[[Path], Server]


def save_items(folder: Path, item_table: pl.DataFrame) -> None:
    """A model of random weights over these items."""
    save_artefact(folder, replace(random_artefact(len(item_table)), item_table=item_table))


def test_titles_are_text_and_never_markup(tmp_path: Path, start: START, visit: Visit) -> None:
    count = 12
    ids = [f"{HOSTILE}/{number}&'" for number in range(count)]
    table = {
        "item_id": ids,
        "category": [HOSTILE, "<b>bold</b>"] * 6,
        "title": [f"{HOSTILE} {n}" for n in range(count)],
    }
    save_items(tmp_path / "model", pl.DataFrame(table))
    page = visit(start(tmp_path / "model"))
    assert len(liked(page)) == 3
    assert all(name.startswith(HOSTILE) for name in liked(page) + recommended(page))
    search_box(page).press_sequentially("<img")
    expect(suggestions(page).first).to_contain_text(HOSTILE)
    add(page, f"{HOSTILE} 7")
    settle(page)
    page.locator("#filter-value").select_option("<b>bold</b>")
    settle(page)
    page.locator(".recommendation").first.hover()
    expect(page.locator("#caption")).to_contain_text(HOSTILE)
    page.locator("#tree [data-node='1/0']").click()
    expect(page.locator("#node .sample .name").first).to_contain_text(HOSTILE)
    page.reload()
    settle(page)
    assert liked(page)[0] == f"{HOSTILE} 7"
    assert page.title() == "beamtree"
    assert page.locator("img").count() == 1
    assert page.locator("main b").count() == 0


def test_without_titles_and_categories_ids_are_shown(tmp_path: Path, start: START, visit: Visit) -> None:
    huge = 9_007_199_254_740_993
    save_items(tmp_path / "model", pl.DataFrame({"item_id": [huge + number for number in range(40)]}))
    server = start(tmp_path / "model")
    page = visit(server)
    expect(page.locator("#filter")).to_be_hidden()
    add(page, str(huge + 6))
    settle(page)
    history = [int(name) for name in reversed(liked(page))]
    assert history[-1] == huge + 6
    result = server.recommend(history=history, k=10, beam=10)
    assert recommended(page) == [str(item["item_id"]) for item in result["items"]]
    page.locator("#tree [data-node='2/1']").click()
    expect(page.locator("#node .sample li").first).to_contain_text(str(huge)[:12])
    expect(page.locator("#node .shares")).to_have_count(0)


def test_a_catalogue_smaller_than_the_answer(tmp_path: Path, start: START, visit: Visit) -> None:
    save_items(tmp_path / "model", pl.DataFrame({"item_id": ["a/b", "ü", "c d"], "title": ["One", None, "Three"]}))
    page = visit(start(tmp_path / "model"), fragment="#item=%C3%BC")
    assert liked(page) == ["ü"]
    assert sorted(recommended(page)) == ["One", "Three"]
    add(page, "One")
    settle(page)
    assert recommended(page) == ["Three"]
    add(page, "Three")
    expect(page.locator("#recommendations-note")).to_contain_text("no item left")
