import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

from tests.page.screen import FIRST_BEAM, settle
from tests.serving.models import TINY, save_model
from tests.serving.server import Server

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

Visit = Callable[..., Page]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A real Chromium, headless. Without one the tests are skipped, except in CI, where that is a failure."""
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        reason = f"no browser: install one of {', '.join(BROWSERS)} or name it in CHROMIUM"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS))
        yield running
        running.close()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over 300 items 100 .. 399 with titles, three categories, years and tags."""
    folder = tmp_path_factory.mktemp("site")
    save_model(folder / "model", 300, settings=TINY | {"retrieval": {"beam_width": FIRST_BEAM, "exclude_seen": True}})
    running = Server(folder / "model", "--watch-seconds", "0", log=folder / "server.log")
    yield running
    running.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Path], Server]]:
    """Starts servers of the test's own."""
    started: list[Server] = []

    def start_server(model: Path) -> Server:
        started.append(Server(model, "--watch-seconds", "0", log=tmp_path / f"server-{len(started)}.log"))
        return started[-1]

    yield start_server
    for server in started:
        server.stop()


@pytest.fixture(scope="package")
def laptop(browser: Browser) -> BrowserContext:
    """Where pages are opened that ask for nothing special; the page itself stores nothing."""
    return browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")


@pytest.fixture
def visit(browser: Browser, laptop: BrowserContext) -> Iterator[Visit]:
    """Opens the page of a server and waits for its first answer; `before` prepares the page and does not wait.

    The page may not load anything from elsewhere and may not complain on the console, except about answers that a
    test itself makes fail.
    """
    complaints: list[str] = []
    opened: list[Page | BrowserContext] = []

    def open_page(
        server: Server, *, fragment: str = "", before: Callable[[Page], object] | None = None, **options: Any
    ) -> Page:
        origin = f"http://127.0.0.1:{server.port}/"
        context = laptop
        if options or before is not None:
            context = browser.new_context(reduced_motion="reduce", **options)
            opened.append(context)
        page = context.new_page()
        opened.append(page)
        page.set_default_timeout(15_000)

        def hear(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
                complaints.append(message.text)

        def watch(request: Request) -> None:
            if not request.url.startswith(origin):
                complaints.append(request.url)

        page.on("console", hear)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", watch)
        if before is not None:
            before(page)
        page.goto(origin + fragment)
        if before is None:
            settle(page)
        return page

    yield open_page
    for one in reversed(opened):
        one.close()
    assert complaints == []
