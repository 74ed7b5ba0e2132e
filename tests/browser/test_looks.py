"""Every page on a phone and on a desk, light and dark: nothing sticks out, all can be read, fields have labels.

The pictures are for people to look at: SHOTS names the folder that keeps them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Tab

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
FORMS = ["order", "pay", "two", "script", "gift", "tip"]

# For each visible text: the contrast of its colour with the nearest background behind it (WCAG 2.2, 1.4.3).
CONTRASTS = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => parse(colour).slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if ((parse(colour)[3] ?? 1) === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("body *")]
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .filter((e) => e.checkVisibility() && !e.disabled)
    .map((e) => {
      const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
      return [e.textContent.trim().slice(0, 40), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
    });
}"""

UNLABELLED = """() => [...document.querySelectorAll("input:not([type=hidden]), select")]
  .filter((field) => !field.labels.length).map((field) => field.outerHTML)"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    named = os.environ.get("SHOTS")
    made = Path(named) if named else tmp_path_factory.mktemp("shots")
    made.mkdir(parents=True, exist_ok=True)
    return made


def pages(tab):
    """Bring up one page after the other, and name each."""
    tab.open("/")
    yield "home"
    for name in FORMS:
        tab.open(f"/{name}")
        if name == "script":
            expect(tab.button("script")).to_be_enabled()
        yield name
    tab.open("/gift").button("gift").click()
    expect(tab.page.locator(".error")).to_be_visible()
    yield "gift-with-mistakes"
    tab.open("/tip").button("tip").click()
    expect(tab.page.locator("h1")).to_have_text("Thank you for the tip")
    yield "tip-thanks"
    tab.open("/pay").button("pay").click()
    expect(tab.page.locator("h1")).to_have_text("The card terminal did not answer")
    yield "terminal-down"
    tab.open("/order").double_click(tab.button("order"))
    expect(tab.page.locator("h1")).to_have_text("Your order is being made")
    yield "still-working"
    expect(tab.page.locator("[data-count=order]")).to_have_text("1")
    tab.open("/two").button("cake").click()
    expect(tab.page.locator(".flash")).to_be_visible()
    yield "order-made"
    tab.page.go_back()
    tab.page.fill("#cake-quantity", "4")
    tab.button("cake").click()
    expect(tab.page.locator("body")).to_contain_text("Open the form again")
    yield "changed-and-refused"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_pages_can_be_read(shop, new_context, folder, viewport, scheme):
    tab = Tab(new_context(viewport=viewport, color_scheme=scheme).new_page(), shop)
    for name in pages(tab):
        tab.page.screenshot(path=folder / f"{name}-{viewport['width']}-{scheme}.png", full_page=True)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], name
        assert tab.page.evaluate(UNLABELLED) == [], name
        weak = [text for text, contrast in tab.page.evaluate(CONTRASTS) if contrast < 4.5]
        assert weak == [], name


def test_the_keyboard_reaches_everything_and_shows_where_it_is(tab):
    tab.open("/order")
    reached = []
    for _ in range(20):
        tab.page.keyboard.press("Tab")
        focused = tab.page.locator(":focus")
        reached.append(focused.get_attribute("id") or focused.inner_text())
        assert focused.evaluate("e => getComputedStyle(e).outlineStyle") != "none", reached
        if reached[-1] == "Empty the list":
            break
    assert reached[0] == "Skip to the page"
    assert reached[-1] == "Empty the list"
    assert {"order-item", "order-quantity", "Order", "twin-item", "Order without protection"} <= set(reached)


def test_the_list_is_emptied_on_the_spot(shop, tab):
    tab.open("/two").button("cake").click()
    expect(tab.page.locator("[data-count=cake]")).to_have_text("1")
    url = tab.page.url
    tab.page.get_by_role("button", name="Empty the list").click()
    expect(tab.page.locator(".empty")).to_be_visible()
    assert (tab.page.url, shop.made()) == (url, {})
