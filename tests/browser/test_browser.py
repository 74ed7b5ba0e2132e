"""The browser itself: it opens pages of a served app."""

from __future__ import annotations

from playwright.sync_api import expect


def test_a_page_of_a_served_app_opens(gunicorn, browser_page):
    served = gunicorn("tests.apps.hello:create_app()", env={"HELLO": "seen in a browser"})
    browser_page.goto(served.url)
    expect(browser_page.locator("body")).to_contain_text("seen in a browser")


def test_a_second_tab_and_a_second_visitor(gunicorn, browser_context, new_context):
    served = gunicorn("tests.apps.hello:create_app()")
    for context in (browser_context, browser_context, new_context(viewport={"width": 390, "height": 844})):
        page = context.new_page()
        assert page.goto(served.url).status == 200
