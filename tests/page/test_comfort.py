"""Usable by everyone: small screens, the keyboard, screen readers, dark rooms, weak eyes, quiet motion."""

from typing import Any, Literal

from playwright.sync_api import expect

from tests.page.conftest import Visit
from tests.page.screen import add, recommended, settle
from tests.serving.server import Server

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}

WEAK_TEXTS = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(e).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const weak = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join("");
    if (!text || !element.checkVisibility() || element.closest("script, noscript, .highlight")) continue;
    const style = getComputedStyle(element);
    const isDrawn = element instanceof SVGElement;
    const mark = isDrawn && element.previousElementSibling?.tagName === "circle" && element.previousElementSibling;
    const behind = mark && mark.parentElement.matches(".recommended")
      ? parse(getComputedStyle(mark).fill) : ground(element);
    const [one, other] = [light(parse(isDrawn ? style.fill : style.color)), light(behind)].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) weak.push(`${text}: ${ratio.toFixed(2)}`);
  }
  return weak;
}"""

OUTSIDE = """() => [...document.querySelectorAll("main *, header *")]
  .filter((element) => element.checkVisibility() && !element.closest("svg, .unseen"))
  .filter((element) => element.getBoundingClientRect().right > innerWidth)
  .map((element) => element.outerHTML.slice(0, 80))"""

FRAME_WIDTH = "document.querySelector('#tree-frame').clientWidth"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

NAMELESS = """() => [...document.querySelectorAll("button, input, select, a, [role=button], [role=group]")]
  .filter((element) => element.checkVisibility())
  .filter((element) => !(element.getAttribute("aria-label") || element.labels?.length || element.innerText?.trim()))
  .map((element) => element.outerHTML)"""


def test_all_text_stands_out_from_its_ground(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107&item=5")
    page.locator("#tree [data-node='2/1']").click()
    expect(page.locator("#node h3")).to_be_visible()
    page.get_by_role("slider").press("ArrowRight")
    settle(page)
    grounds = {}
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert page.evaluate(WEAK_TEXTS) == [], scheme
    assert grounds == {"light": "rgb(251, 250, 247)", "dark": "rgb(17, 22, 20)"}


def test_every_control_has_a_name(site: Server, visit: Visit) -> None:
    page = visit(site)
    page.locator("#tree [data-node='2/1']").click()
    expect(page.locator("#node h3")).to_be_visible()
    assert page.evaluate(NAMELESS) == []


def test_nothing_sticks_out(site: Server, visit: Visit) -> None:
    page = visit(site)
    for width in (320, 390, 820, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        expect(page.locator("#tree")).to_have_js_property("clientWidth", page.evaluate(FRAME_WIDTH))
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate(OUTSIDE) == []


def test_on_a_laptop_all_three_parts_are_seen_without_scrolling(site: Server, visit: Visit) -> None:
    page = visit(site)
    for part in ("#search", "#history", "#recommendations li:nth-child(10)", "#beam", "#tree", ".legend"):
        expect(page.locator(part)).to_be_in_viewport(ratio=1)


def test_on_a_phone_a_tap_brings_the_way_and_the_branch_into_sight(site: Server, visit: Visit) -> None:
    page = visit(site, **PHONE)
    expect(page.locator("#tree")).not_to_be_in_viewport()
    page.locator(".recommendation").nth(1).tap()
    expect(page.locator("#tree .highlight .line")).to_be_in_viewport()
    page.locator("#tree [data-node='2/1']").tap()
    sheet = page.get_by_role("complementary", name="A branch of the tree")
    expect(sheet.get_by_role("button", name="Close this branch")).to_be_in_viewport()
    expect(page.locator("#tree .ring circle")).to_be_in_viewport()
    boxes: list[Any] = [page.locator("#tree .ring circle").bounding_box(), sheet.bounding_box()]
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]


def test_the_keyboard_reaches_everything_in_reading_order(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107")
    reached: list[str] = []
    for _ in range(40):
        page.keyboard.press("Tab")
        place = page.evaluate(
            """() => {
              const { activeElement: at } = document;
              const outline = getComputedStyle(at).outlineStyle;
              const isSeen = outline !== "none" || at.id === "beam" || Boolean(document.querySelector(".hover circle"));
              return (at.closest("section")?.className.split(" ")[1] ?? "top") + (isSeen ? "" : " unseen");
            }"""
        )
        if not reached or reached[-1] != place:
            reached.append(place)
    assert reached[:4] == ["top", "history", "answers", "walk"]


def test_changes_are_announced(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107")
    add(page, "Title 40")
    settle(page)
    expect(page.get_by_role("status").last).to_have_text(f"10 recommendations, first {recommended(page)[0]}")


def test_the_walk_is_animated_only_for_who_wants_it(site: Server, visit: Visit) -> None:
    page = visit(site)
    level = page.locator("#tree.walking .level").first
    expect(level).to_have_css("animation-name", "none")
    page.emulate_media(reduced_motion="no-preference")
    expect(level).to_have_css("animation-name", "appear")
