"""The beam's way through the tree, and what lives below its branches."""

import re
from typing import Any

from playwright.sync_api import Page, expect

from tests.page.conftest import Visit
from tests.page.screen import liked, recommended, settle
from tests.serving.server import Server

HISTORY = [107, 203]
FRAGMENT = "#item=107&item=203&beam=20"


def explained(server: Server) -> dict[str, Any]:
    return server.recommend(history=HISTORY, k=10, beam=20, columns=["title"], explain=True)


def marks(page: Page, kind: str) -> set[str]:
    """Names level/node of the nodes that are drawn so."""
    return {str(mark.get_attribute("data-node")) for mark in page.locator(f"#tree [data-node].{kind}").all()}


def test_what_was_kept_dropped_and_recommended_is_drawn(site: Server, visit: Visit) -> None:
    page = visit(site, fragment=FRAGMENT)
    answer = explained(site)
    height = site.get("/v1/model").json["tree"]["height"]
    paths = {f"{step['level']}/{step['node']}" for item in answer["items"] for step in item["path"]}
    searched = [level for level in answer["beam"]["levels"] if level["level"] < height]
    kept = {f"{level['level']}/{node}" for level in searched for node in level["nodes"]}
    first = searched[0]["level"]
    whole = {f"{level}/{node}" for level in range(1, first) for node in range(2**level)}
    assert marks(page, "recommended") == {name for name in paths if name.startswith(f"{height}/")}
    assert marks(page, "way") == {name for name in paths if not name.startswith(f"{height}/")} | {"0/0"}
    assert marks(page, "kept") == (kept | whole) - paths
    reached = {f"{first}/{node}" for node in range(2**first)} | {
        f"{level['level'] + 1}/{child}"
        for level in searched[:-1]
        for node in level["nodes"]
        for child in (2 * node, 2 * node + 1)
    }
    assert marks(page, "dropped") == reached - kept
    for level in searched:
        expect(page.locator("#tree")).to_contain_text(f"kept {level['kept']} of {level['scored']}")


def test_under_a_filter_only_what_the_beam_looked_at_is_drawn_as_dropped(site: Server, visit: Visit) -> None:
    page = visit(site, fragment=f"{FRAGMENT}&column=category&value=War")
    allow = {"where": [{"column": "category", "one_of": ["War"]}]}
    beam = site.recommend(history=HISTORY, k=10, beam=20, allow=allow, explain=True)["beam"]
    height = site.get("/v1/model").json["tree"]["height"]
    searched = [level for level in beam["levels"] if level["level"] < height]
    above, last = searched[-2:]
    children = {child for node in above["nodes"] for child in (2 * node, 2 * node + 1)}
    assert children > {*last["nodes"], *last["dropped"]}, "some branches have no war below"
    assert marks(page, "dropped") == {f"{level['level']}/{node}" for level in searched for node in level["dropped"]}


def test_pointing_at_a_recommendation_shows_its_way(site: Server, visit: Visit) -> None:
    page = visit(site, fragment=FRAGMENT)
    answer = explained(site)
    third = answer["items"][2]
    ranks = [f"#{step['rank']}" for step in third["path"][:-1] if step["rank"] is not None]
    highlight = page.locator("#tree .highlight")
    expect(highlight.locator("text")).to_have_count(0)

    page.locator("#recommendations li").nth(2).hover()
    expect(highlight.locator("text")).to_have_text([*ranks, "3"])
    expect(page.locator("#caption")).to_contain_text(f"{third['columns']['title']} was found because")
    page.locator("h1").hover()
    expect(highlight.locator("text")).to_have_count(0)

    page.locator(".recommendation").nth(2).focus()
    expect(highlight.locator("text")).to_have_text([*ranks, "3"])
    page.keyboard.press("Enter")
    expect(page.locator(".recommendation").nth(2)).to_have_attribute("aria-pressed", "true")
    page.locator("#search").focus()
    expect(highlight.locator("text")).to_have_text([*ranks, "3"])
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(highlight.locator("text")).to_have_count(0)


def test_a_branch_is_opened_and_followed_down_and_up(site: Server, visit: Visit) -> None:
    page = visit(site, fragment=FRAGMENT)
    node = site.get("/v1/tree/nodes/2/1?sample=8").json
    page.locator("#tree [data-node='2/1']").click()
    panel = page.get_by_role("complementary", name="A branch of the tree")
    expect(panel.get_by_role("heading", name="A branch on level 2")).to_be_focused()
    expect(panel).to_contain_text(f"Most popular of {node['items']} items below")
    titles = [item["columns"]["title"] for item in node["sample"][:5]]
    expect(panel.locator(".sample .name")).to_have_text(titles)
    counted = [f"{round(100 * value['count'] / node['items'])} %" for value in node["values"][:3]]
    expect(panel.locator(".shares .kind")).to_have_text(counted)
    expect(page.locator("#tree .ring circle")).to_have_count(1)

    panel.locator(".child").nth(1).click()
    expect(panel.get_by_role("heading", name="A branch on level 3")).to_be_focused()
    below = site.get("/v1/tree/nodes/3/3").json
    expect(panel).to_contain_text(f"Most popular of {below['items']} items below")
    panel.get_by_role("button", name="One level up").click()
    expect(panel.locator(".sample .name")).to_have_text(titles)

    fresh = next(title for title in titles if title not in liked(page))
    panel.get_by_role("button", name=f"I like {fresh} too").click()
    settle(page)
    assert liked(page)[0] == fresh
    panel.get_by_role("button", name="Close this branch").click()
    expect(panel).to_be_hidden()
    expect(page.locator("#tree .ring circle")).to_have_count(0)


def test_the_tree_is_walked_with_the_keyboard(site: Server, visit: Visit) -> None:
    page = visit(site, fragment=FRAGMENT)
    best = explained(site)["items"][0]["path"]
    page.locator("#beam").focus()
    page.keyboard.press("Tab")

    def here() -> str:
        return str(page.evaluate("document.activeElement.dataset.node"))

    assert here() == "0/0"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert here() == "1/1"
    page.keyboard.press("ArrowLeft")
    assert here() == "1/0"
    page.keyboard.press("ArrowUp")
    assert here() == "0/0"
    for step in best[:2]:
        wanted = f"{step['level']}/{step['node']}"
        page.keyboard.press("ArrowDown")
        if here() != wanted:
            page.keyboard.press("ArrowRight")
        assert here() == wanted
    expect(page.locator("#caption")).to_contain_text(re.compile("Level 2, branch .* of 4"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="A branch on level 2")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#node")).to_be_hidden()
    assert here() == f"{best[1]['level']}/{best[1]['node']}"


def test_a_recommended_leaf_opens_its_item(site: Server, visit: Visit) -> None:
    page = visit(site, fragment=FRAGMENT)
    first = recommended(page)[0]
    page.get_by_role("button", name=f"Recommended, rank 1: {first}").click()
    panel = page.get_by_role("complementary", name="A branch of the tree")
    expect(panel.get_by_role("heading", name="One item")).to_be_visible()
    expect(panel.locator(".sample .name")).to_have_text([first])
    expect(panel.locator(".sample .rank")).to_have_text("1")


def test_a_crowded_level_can_still_be_pointed_at(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107&item=203&beam=200")
    settle(page)
    expect(page.locator("#tree .strokes.kept").last).to_be_attached()
    strokes = page.locator("#tree .strokes.kept").last.get_attribute("d") or ""
    box = page.locator("#tree").bounding_box()
    found = re.match(r"M([\d.]+) ([\d.]+)v8", strokes)
    assert box is not None
    assert found is not None
    page.mouse.click(box["x"] + float(found.group(1)), box["y"] + float(found.group(2)) + 4)
    expect(page.get_by_role("complementary", name="A branch of the tree")).to_be_visible()
