"""The system's Chromium, driven by Playwright; ./dev test runs these tests in a pytest process of their own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, Response, expect, sync_playwright

from tests.apps import switched_off
from tests.servers import binary
from tests.webservers import WebServer

ARGS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ARGS += ["--disable-component-update", "--disable-sync"]
ROOT_ARGS = ["--no-sandbox", "--disable-dev-shm-usage"]  # Chromium refuses its sandbox to root

expect.set_options(timeout=15_000)  # ms; a slow order takes 2 s, the list beside it looks every second


@pytest.fixture(scope="session")
def svc_browser() -> Iterator[Browser]:
    path = binary("browser")
    args = ARGS + (ROOT_ARGS if os.geteuid() == 0 else [])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=args)
        yield browser
        browser.close()


@pytest.fixture
def new_context(svc_browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """``new_context(viewport={"width": 390, "height": 844})``: a visitor with cookies and a history of their own."""
    contexts: list[BrowserContext] = []

    def make(**options: object) -> BrowserContext:
        contexts.append(svc_browser.new_context(**options))
        contexts[-1].set_default_timeout(10_000)  # ms
        return contexts[-1]

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def browser_context(new_context: Callable[..., BrowserContext]) -> BrowserContext:
    """One visitor; ``browser_context.new_page()`` is another tab."""
    return new_context()


@pytest.fixture
def browser_page(browser_context: BrowserContext) -> Page:
    """A tab of that visitor."""
    return browser_context.new_page()


class Shop(WebServer):
    """The example shop as ``./dev demo`` starts it: a process of its own, with its own Valkey."""

    def __init__(self, folder: Path) -> None:
        argv = [sys.executable, "-m", "example_app", "--no-browser", "--port", "{port}"]
        env = {"FLASK_IDEMPOTENCY_ENABLED": "false"} if switched_off() else {}
        super().__init__("shop", argv, folder, env)

    def made(self) -> dict[str, int]:
        """How many orders each form has made, as the database says."""
        found = re.findall(r'data-count="(\w+)">(\d+)<', requests.get(f"{self.url}/orders", timeout=10).text)
        return {form: int(count) for form, count in found}

    def empty(self) -> None:
        requests.post(f"{self.url}/reset", timeout=10).raise_for_status()


@pytest.fixture(scope="session")
def _running_shop(server_folder: Path) -> Iterator[Shop]:
    shop = Shop(server_folder / "shop")
    shop.start()
    yield shop
    shop.stop()


@pytest.fixture
def shop(_running_shop: Shop) -> Shop:
    """The shop, with an empty list of orders."""
    _running_shop.empty()
    return _running_shop


class Tab:
    """A tab that shows the shop, and what it sent.

    :ivar posts: the POST requests that really left the browser.
    :ivar answers: the answers that it received to them; a navigation cut short by the next click has none.
    """

    def __init__(self, page: Page, shop: Shop) -> None:
        self.page = page
        self.posts: list[Request] = []
        self.answers: list[Response] = []
        self._url = shop.url
        page.on("request", lambda request: self.posts.append(request) if request.method == "POST" else None)
        page.on("response", lambda answer: self.answers.append(answer) if answer.request.method == "POST" else None)

    def open(self, path: str) -> Tab:
        self.page.goto(self._url + path)
        return self

    def button(self, form: str) -> Locator:
        """The button that sends a form."""
        return self.page.locator(f"#{form} button").first

    def token(self, form: str) -> str:
        """The token that a form carries."""
        return self.page.locator(f"#{form} [name=idempotency_token]").input_value()

    def double_click(self, button: Locator) -> None:
        """Two clicks of a hand, 120 ms apart: Playwright's own dblclick() sends one POST."""
        button.scroll_into_view_if_needed()
        box = button.bounding_box()
        assert box is not None
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.page.mouse.click(*middle)
        self.page.wait_for_timeout(120)
        self.page.mouse.click(*middle)


@pytest.fixture
def new_tab(browser_context: BrowserContext, shop: Shop) -> Callable[[], Tab]:
    """``new_tab().open("/order")``: one more tab of the same visitor."""
    return lambda: Tab(browser_context.new_page(), shop)


@pytest.fixture
def tab(new_tab: Callable[[], Tab]) -> Tab:
    return new_tab()
