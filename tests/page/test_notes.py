"""What the page says where one might wonder: the beam that it opens with, a wider beam, a short list."""

from playwright.sync_api import Page, expect

from tests.page.conftest import Visit
from tests.page.screen import FIRST_BEAM, recommended, settle
from tests.serving.server import Server

HISTORY = "#item=107&item=203"


def choose_beam(page: Page, place: int) -> None:
    """Move the slider to one of its steps."""
    page.locator("#beam").evaluate(
        "(slider, place) => { slider.value = place; slider.dispatchEvent(new Event('input')); }", place
    )
    settle(page)


def test_it_opens_with_the_beam_of_the_model(site: Server, visit: Visit) -> None:
    page = visit(site)
    expect(page.locator("#beam-value")).to_have_text(f"{FIRST_BEAM}, as the model is set")
    assert f"beam={FIRST_BEAM}" in page.url
    choose_beam(page, 0)
    expect(page.locator("#beam-value")).to_have_text("10")


def test_it_says_why_the_search_keeps_more_than_the_slider_says(site: Server, visit: Visit) -> None:
    page = visit(site, fragment=f"{HISTORY}&beam=20")
    note = page.locator("#beam-note")
    expect(note).to_have_text(
        "20 becomes 22: the list leaves out 2 items that you liked, so the beam grows by as many."
    )
    page.get_by_label("Leave out what I already liked").uncheck()
    settle(page)
    expect(note).to_have_text("")
    expect(page.locator("#tree")).to_contain_text("kept 20 of")


def test_a_beam_grows_at_most_to_twice_its_width(site: Server, visit: Visit) -> None:
    liked = "&".join(f"item={number}" for number in range(150, 165))
    page = visit(site, fragment=f"#{liked}&beam=10")
    expect(page.locator("#beam-note")).to_contain_text("10 becomes 20: the list leaves out what you liked")


def test_a_filter_that_leaves_little_is_explained(site: Server, visit: Visit) -> None:
    """Six items are of any one year; of those of 1957 one is liked."""
    page = visit(site, fragment=f"{HISTORY}&column=year&value=1957")
    assert len(recommended(page)) == 5
    expect(page.locator("#recommendations-note")).to_have_text(
        "Only 5 items fit the filter “year is 1957”, apart from what you liked, so the list cannot be longer."
    )
    expect(page.locator("#caption")).to_contain_text("The filter leaves 5 items, no more than the beam width")
    page = visit(site, fragment=f"{HISTORY}&column=year&value=1960&seen=keep")
    expect(page.locator("#recommendations-note")).to_have_text(
        "Only 6 items fit the filter “year is 1960”, so the list cannot be longer."
    )


def test_upper_branches_and_leaves_carry_names(site: Server, visit: Visit) -> None:
    page = visit(site, fragment=f"{HISTORY}&beam=20")
    branches = site.get("/v1/tree/branches?per_level=32").json["branches"]
    names = {f"{branch['level']}/{branch['node']}": branch["name"] for branch in branches}
    drawn = page.locator("#tree .branch-name").all_text_contents()
    assert drawn
    assert all(any(name.startswith(text.removesuffix("…").rstrip()) for name in names.values()) for text in drawn)
    titles = page.locator("#tree .leaf-title").all_text_contents()
    assert sorted(titles) == sorted(recommended(page))
    page.locator("#tree [data-node='1/1']").hover()
    expect(page.locator("#caption")).to_contain_text(f"Level 1, branch 2 of 2 ({names['1/1']})")
    page.locator("#tree [data-node='1/1']").click()
    expect(page.locator("#node .branch-title")).to_have_text(names["1/1"])
    children = site.get("/v1/tree/nodes/1/1").json["children"]
    expect(page.locator("#node .child .name")).to_have_text([child["name"] for child in children])


def test_an_opened_branch_does_not_cover_the_tree(site: Server, visit: Visit) -> None:
    for viewport in ({"width": 1440, "height": 900}, {"width": 390, "height": 844}):
        page = visit(site, fragment=HISTORY, viewport=viewport)
        for node in ("1/0", "1/1"):
            page.locator(f"#tree [data-node='{node}']").click()
            expect(page.locator("#node")).to_be_visible()
            tree, panel = page.locator("#tree").bounding_box(), page.locator("#node").bounding_box()
            assert tree is not None
            assert panel is not None
            assert panel["y"] >= tree["y"] + tree["height"]
            expect(page.locator("#tree .ring circle")).to_be_in_viewport()
            expect(page.get_by_role("button", name="Close this branch")).to_be_in_viewport()
