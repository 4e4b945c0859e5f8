"""When the server is busy, refuses, fails or is gone."""

from functools import partial
from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.page.conftest import Visit
from tests.page.screen import add, expected_titles, liked, recommended, settle
from tests.serving.server import Server


def refusal(message: str) -> dict[str, Any]:
    return {"error": {"code": "some_code", "message": message, "details": []}}


FAILURES: dict[str, dict[str, Any] | None] = {
    "The server did not accept this: beam: at most 5.": {"status": 422, "json": refusal("beam: at most 5.")},
    "The server had a problem: See its log.": {"status": 500, "json": refusal("See its log.")},
    "an answer that this page cannot read (status 200)": {"status": 200, "body": "<html>"},
    "The server cannot be reached.": None,
}


def test_a_failure_is_told_and_tried_again(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107")
    history = [107]
    for number, (words, answer) in enumerate(FAILURES.items()):
        before = recommended(page)
        page.route("**/v1/recommend", partial(_answer, answer))
        add(page, f"Title {40 + number}")
        history.append(140 + number)
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text(words)
        assert recommended(page) == before
        assert len(liked(page)) == len(history)
        page.unroute("**/v1/recommend")
        alert.get_by_role("button", name="Try again").click()
        expect(alert).to_be_hidden()
        settle(page)
        assert recommended(page) == expected_titles(site, history)


def _answer(answer: dict[str, Any] | None, route: Route) -> None:
    """Answer like this, or not at all."""
    if answer is None:
        route.abort()
    else:
        route.fulfill(**answer)


def test_a_busy_server_is_asked_again_after_the_time_it_named(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107", before=lambda page: page.clock.install(time=0))
    settle(page)
    page.clock.pause_at(3_600_000)
    busy = {"status": 503, "headers": {"Retry-After": "7"}, "json": refusal("The queue is full.")}
    page.route("**/v1/recommend", partial(_answer, busy))
    page.get_by_role("checkbox").uncheck()
    page.clock.run_for(1000)
    alert = page.get_by_role("alert")
    expect(alert).to_have_text("The server is busy. Trying again in 7 seconds. Try again")
    page.unroute("**/v1/recommend")
    page.clock.run_for(6900)
    expect(alert).to_be_visible()
    page.clock.run_for(200)
    expect(alert).to_be_hidden()


def test_a_page_that_finds_no_server_starts_when_it_is_back(site: Server, visit: Visit) -> None:
    def cut_off(page: Page) -> None:
        page.route("**/v1/**", lambda route: route.abort())

    page = visit(site, before=cut_off)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The server cannot be reached.")
    expect(page.get_by_role("heading", name="You may like")).to_be_hidden()
    page.unroute("**/v1/**")
    alert.get_by_role("button", name="Try again").click()
    settle(page)
    expect(alert).to_be_hidden()
    assert len(recommended(page)) == 10


def test_a_branch_that_cannot_be_read_says_so(site: Server, visit: Visit) -> None:
    page = visit(site, fragment="#item=107")
    page.route("**/v1/tree/**", lambda route: route.abort())
    page.locator("#tree [data-node='2/1']").click()
    panel = page.get_by_role("complementary", name="A branch of the tree")
    expect(panel).to_contain_text("The server cannot be reached.")
    page.unroute("**/v1/tree/**")
    panel.get_by_role("button", name="Try again").click()
    expect(panel.get_by_role("heading", name="A branch on level 2")).to_be_visible()
