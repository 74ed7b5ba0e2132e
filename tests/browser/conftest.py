"""The system's Chromium, driven by Playwright; ./dev test runs these tests in a pytest process of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.servers import binary

ARGS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ARGS += ["--disable-component-update", "--disable-sync"]
ROOT_ARGS = ["--no-sandbox", "--disable-dev-shm-usage"]  # Chromium refuses its sandbox to root


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
