"""What is on the page, read as a person would read it."""

from playwright.sync_api import Locator, Page, expect

from tests.serving.server import Server

FIRST_BEAM = 24
"""The beam width of the model that `site` serves."""
ANSWERS = 10


def settle(page: Page) -> None:
    """Wait until the page has shown the answer to all that was done so far."""
    page.wait_for_selector("main[aria-busy=false]")


def liked(page: Page) -> list[str]:
    """Names in the history, newest first."""
    return page.locator("#history .name").all_inner_texts()


def recommended(page: Page) -> list[str]:
    """Names of the recommendations, best first."""
    return page.locator("#recommendations .name").all_inner_texts()


def search_box(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Search for something you liked")


def add(page: Page, title: str) -> None:
    """Search for an item by its full title and add the first one found, without waiting for anything."""
    search_box(page).fill(title)
    search_box(page).press("Enter")
    expect(page.locator("#history .name").first).to_have_text(title)


def suggestions(page: Page) -> Locator:
    """What the search box offers."""
    return page.get_by_role("listbox", name="Search results").get_by_role("option")


def clear(page: Page) -> None:
    page.get_by_role("button", name="Clear").click()
    search_box(page).press("Escape")
    settle(page)


def figure(page: Page, name: str) -> str:
    """The value under a heading such as 'Search time'."""
    return page.locator(".figures div", has_text=name).locator("dd").inner_text()


def expected_titles(server: Server, history: list[int], *, beam: int = FIRST_BEAM, **request: object) -> list[str]:
    """What the server recommends for a history, best first."""
    result = server.recommend(history=history, k=ANSWERS, beam=beam, columns=["title"], **request)
    return [item["columns"]["title"] for item in result["items"]]
