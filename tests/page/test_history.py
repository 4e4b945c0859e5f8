"""Building a history and seeing what it brings."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Request, Route, expect

from tests.page.conftest import Visit
from tests.page.screen import (
    ANSWERS,
    add,
    clear,
    expected_titles,
    figure,
    liked,
    recommended,
    search_box,
    settle,
    suggestions,
)
from tests.serving.models import save_model
from tests.serving.server import Server

NOTHING_MEASURED = "\N{EN DASH}"


def test_something_is_seen_at_once(site: Server, visit: Visit) -> None:
    page = visit(site)
    expect(page.locator(".lead")).to_contain_text("300 items")
    ids = [int(title.removeprefix("Title ")) + 100 for title in reversed(liked(page))]
    assert len(ids) == 3
    assert recommended(page) == expected_titles(site, ids)
    expect(page.locator("#history-note")).to_contain_text("An example")
    assert page.locator("#tree .recommended").count() == 10


def test_searching_with_the_keyboard_adds_and_removes(site: Server, visit: Visit) -> None:
    page = visit(site)
    clear(page)
    box = search_box(page)
    box.press_sequentially("title 12")
    options = suggestions(page)
    expect(options).to_have_text([re.compile("Title 12"), *[re.compile("Title 12.")] * 7])
    expect(options.nth(0)).to_have_attribute("aria-selected", "true")
    box.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    expect(box).to_have_attribute("aria-activedescendant", "suggestion-1")
    box.press("ArrowUp")
    box.press("ArrowUp")
    expect(options.nth(7)).to_have_attribute("aria-selected", "true")
    box.press("ArrowDown")
    box.press("Enter")
    expect(box).to_have_value("")
    expect(box).to_be_focused()
    settle(page)
    assert liked(page) == ["Title 12"]

    add(page, "Title 40")
    settle(page)
    assert liked(page) == ["Title 40", "Title 12"]
    assert recommended(page) == expected_titles(site, [112, 140])

    box.press("Backspace")
    settle(page)
    assert liked(page) == ["Title 12"]
    assert recommended(page) == expected_titles(site, [112])
    page.get_by_role("button", name="Remove Title 12").click()
    settle(page)
    assert liked(page) == []


def test_escape_closes_the_list_and_then_empties_the_box(site: Server, visit: Visit) -> None:
    page = visit(site)
    before = liked(page)
    box = search_box(page)
    box.press_sequentially("title")
    expect(suggestions(page).first).to_be_visible()
    box.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    expect(box).to_have_attribute("aria-expanded", "false")
    expect(box).to_have_value("title")
    box.press("Escape")
    expect(box).to_have_value("")
    assert liked(page) == before


def test_recommendations_follow_while_typing(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107")
    search_box(page).press_sequentially("title 77")
    expect(page.locator("#recommendations-note")).to_have_text("If you add Title 77:")
    settle(page)
    assert recommended(page) == expected_titles(site, [107, 177])
    assert liked(page) == ["Title 7"]
    search_box(page).press("Escape")
    expect(page.locator("#recommendations-note")).to_have_text("Best first, with the model's score.")
    settle(page)
    assert recommended(page) == expected_titles(site, [107])


def test_an_item_is_added_by_pointing(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107")
    first = recommended(page)[0]
    page.get_by_role("button", name=f"I like {first} too").click()
    settle(page)
    assert liked(page) == [first, "Title 7"]
    search_box(page).click()
    popular = suggestions(page).first
    title = popular.locator(".name").inner_text()
    popular.click()
    settle(page)
    assert liked(page)[0] == title


def test_without_a_history_the_popular_items_are_shown(site: Server, visit: Visit) -> None:
    page = visit(site)
    clear(page)
    popular = site.get("/v1/items?limit=10").json["items"]
    assert recommended(page) == [item["columns"]["title"] for item in popular]
    expect(page.locator("#recommendations .score")).to_have_count(0)
    expect(page.locator("#tree-empty")).to_be_visible()
    assert figure(page, "Search time") == NOTHING_MEASURED
    page.get_by_role("button", name="Another example").click()
    settle(page)
    assert len(liked(page)) == 3
    expect(page.locator("#tree-empty")).to_be_hidden()


def test_liked_items_are_left_out_unless_wanted(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107&beam=300")
    everything = expected_titles(site, [107], beam=300, exclude_seen=False)
    favourite = int(everything[0].removeprefix("Title ")) + 100
    page = visit(site, fragment=f"#item={favourite}&beam=300")
    page.get_by_role("checkbox", name="Leave out what I already liked").uncheck()
    settle(page)
    assert recommended(page) == expected_titles(site, [favourite], beam=300, exclude_seen=False)
    page.get_by_role("checkbox", name="Leave out what I already liked").check()
    settle(page)
    assert everything[0] not in recommended(page)


def test_a_filter_on_the_category_and_on_another_column(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107")
    page.locator("#filter-value").select_option("War")
    settle(page)
    assert set(page.locator("#recommendations .kind").all_inner_texts()) == {"War"}
    wars = {"where": [{"column": "category", "one_of": ["War"]}]}
    assert recommended(page) == expected_titles(site, [107], allow=wars)

    page.get_by_role("combobox", name="Filter by").select_option("year")
    page.locator("#filter-value").select_option("1950")
    settle(page)
    old = {"where": [{"column": "year", "one_of": [1950]}]}
    assert recommended(page) == expected_titles(site, [107], allow=old)

    page.get_by_role("combobox", name="Filter by").select_option("tags")
    page.get_by_role("textbox", name="Contains this text").fill("strange")
    expect(page).to_have_url(re.compile("value=strange"))
    settle(page)
    strange = {"where": [{"column": "tags", "contains": "strange"}]}
    assert recommended(page) == expected_titles(site, [107], allow=strange)

    page.get_by_role("textbox", name="Contains this text").fill("no such tag")
    expect(page.locator("#recommendations-note")).to_contain_text("No item fits the filter “tags contains no such tag”")
    assert recommended(page) == []


def test_the_beam_width_changes_results_and_figures(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107&item=203&beam=10")
    narrow = expected_titles(site, [107, 203], beam=10)
    full = expected_titles(site, [107, 203], beam=300)
    assert narrow != full
    assert recommended(page) == narrow
    assert figure(page, "Same as a full search") == f"{len(set(narrow) & set(full))} of 10"
    assert re.fullmatch(r"[\d.]+ ms", figure(page, "Search time"))
    few = int(figure(page, "Nodes scored").split()[0])

    page.get_by_role("slider", name="Beam width").press("End")
    settle(page)
    assert recommended(page) == full
    assert figure(page, "Same as a full search") == "10 of 10"
    assert int(figure(page, "Nodes scored").split()[0]) == 298 > few
    marked = page.locator("#recommendations li", has=page.locator(".moved.new")).locator(".name").all_inner_texts()
    assert marked == [title for title in full if title not in narrow]


def test_a_view_can_be_reloaded(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107")
    add(page, "Title 40")
    page.locator("#filter-value").select_option("War")
    page.get_by_role("slider", name="Beam width").press("ArrowRight")
    settle(page)
    before = (liked(page), recommended(page), page.locator("#beam-value").inner_text())
    page.reload()
    settle(page)
    assert (liked(page), recommended(page), page.locator("#beam-value").inner_text()) == before
    assert page.locator("#filter-value").input_value() == "War"


def test_ids_that_the_model_does_not_know_are_told(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107&item=5&item=nonsense")
    expect(page.locator("#history li.pale")).to_have_text([re.compile("nonsense"), re.compile("5")])
    assert recommended(page) == expected_titles(site, [107])


def test_enter_before_the_list_has_come_adds_what_was_typed(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107")
    search_box(page).press_sequentially("title 4")
    expect(suggestions(page).first).to_contain_text("Title 4")
    search_box(page).press("7")
    search_box(page).press("Enter")
    expect(page.locator("#history .name").first).to_have_text("Title 47")
    assert liked(page) == ["Title 47", "Title 7"]


def test_what_is_too_old_for_the_network_is_pale(site: Server, visit: Visit) -> None:
    length = site.get("/v1/model").json["history_length"]
    page = visit(site, fragment="#" + "&".join(f"item={100 + index}" for index in range(length + 2)))
    expect(page.locator("#history li.pale .name")).to_have_text(["Title 1", "Title 0"])


def test_typing_quickly_asks_once(site: Server, visit: Visit) -> None:
    page = visit(site, before=lambda page: page.clock.install(time=0))
    settle(page)
    page.clock.pause_at(3_600_000)
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.extend(re.findall(r"/v1/items\?search=([^&]*)", request.url))

    page.on("request", note)
    search_box(page).press_sequentially("title 1")
    page.clock.run_for(100)
    assert asked == []
    with page.expect_response("**/v1/items?*"):
        page.clock.run_for(100)
    assert asked == ["title+1"]


def test_a_late_answer_does_not_replace_a_newer_one(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107")
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/v1/recommend", hold_the_first)
    with page.expect_request("**/v1/recommend"):
        add(page, "Title 40")
    add(page, "Title 41")
    settle(page)
    newest = expected_titles(site, [107, 140, 141])
    assert recommended(page) == newest
    held[0].fulfill(json={"model_version": "old", "milliseconds": {"queue": 0, "search": 0}, "results": []})
    page.get_by_role("slider", name="Beam width").press("End")
    settle(page)
    assert recommended(page) == expected_titles(site, [107, 140, 141], beam=300)


@pytest.mark.parametrize("parts", [("attention", "memory"), ("memory", "tower")])
def test_a_recommendation_says_which_liked_item_it_comes_from(
    tmp_path: Path, start: Callable[[Path], Server], visit: Visit, parts: tuple[str, ...]
) -> None:
    save_model(tmp_path / "model", 60, parts=parts)
    server = start(tmp_path / "model")
    page = visit(server, fragment="#item=120&item=131&beam=20")
    result = server.recommend(history=[120, 131], k=ANSWERS, beam=20, explain=True)
    reasons = [item["because_of"] for item in result["items"]]
    shown = page.locator("#recommendations .because")
    assert shown.all_inner_texts() == [f"because of {reason[0]['title']}" for reason in reasons if reason]
    assert shown.count() > 0
    first = next(reason for reason in reasons if reason)
    named = ", ".join(f"{reason['title']} ({reason['part']})" for reason in first)
    assert shown.first.get_attribute("title") == f"because of {named}"
    through = {reason[0]["part"] for reason in reasons if reason}
    assert through == set(parts) - {"attention"}
    legend = page.locator("#reasons-legend li").all_inner_texts()
    assert [line.split(" (")[0] for line in legend] == sorted(through)
    best = result["items"][0]
    larger, smaller = sorted(best["parts"], key=lambda part: -best["parts"][part])
    page.locator("#recommendations .recommendation").first.click()
    expect(page.locator("#caption")).to_contain_text(f"= {larger} {best['parts'][larger]:.2f}")
    expect(page.locator("#caption")).to_contain_text(f"{smaller} {abs(best['parts'][smaller]):.2f}.")


def test_without_counted_memory_no_reasons_are_shown(site: Server, visit: Visit) -> None:
    page = visit(site)
    assert recommended(page)
    assert page.locator("#recommendations .because").count() == 0
    expect(page.locator("#reasons-legend")).to_be_hidden()
