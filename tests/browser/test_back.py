"""What Back really brings: the page with its used token, or a fresh page with a fresh token.

Measured with Chromium 150. Back takes a page from one of two places. The back/forward cache keeps the living page;
Chromium has it on for people, Playwright switches it off, and ``no-store`` keeps a page out of it. Without it the page
comes from the HTTP cache, which gives it out again however old it is, unless

- the page said ``no-store``;
- the form was sent to the page's own address: a POST that succeeds throws the cached page away (RFC 9111, 4.4);
- the page said ``Vary: Cookie``, as Flask does once the session was read, and the cookie has changed since.

Then the browser fetches a new page, with a new token, and *fills what was typed into it*: a visitor who sends it again
makes a second order. That is why the extension says ``private, no-cache`` and not ``no-store``. With the back/forward
cache on, only the two rows with ``no-store`` come back fresh (shown once by hand, over http and https).
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

TOKEN_COMES_BACK = [
    pytest.param("/two", "coffee-quantity", False, id="private, no-cache"),
    pytest.param("/two", "coffee-quantity", True, id="private, no-cache; the cookie changed"),
    pytest.param("/two?cache=vary", "coffee-quantity", False, id="Vary: Cookie; the same cookie"),
]
PAGE_IS_FRESH = [
    pytest.param("/two?cache=no-store", "coffee-quantity", False, id="no-store"),
    pytest.param("/two?cache=vary", "coffee-quantity", True, id="Vary: Cookie; the cookie changed"),
    pytest.param("/gift", "gift-euros", False, id="a form sent to its own address"),
    pytest.param("/gift?cache=no-store", "gift-euros", False, id="no-store; a form sent to its own address"),
]


def order_and_go_back(new_tab, path, field, cookie_changes):
    """Send a form with 13 in its field, and go back; return the tab, the form and the token that was used."""
    form = field.partition("-")[0]
    tab = new_tab().open(path)
    if form == "gift":
        tab.page.fill("#gift-name", "Ann")
    tab.page.fill(f"#{field}", "13")
    used = tab.token(form)
    if cookie_changes:
        other = new_tab().open("/pay")
        other.button("pay").click()  # the failed attempt is counted in the session
        expect(other.page.locator("h1")).to_have_text("The card terminal did not answer")
        other.page.close()
    send(tab, form)
    tab.page.go_back()
    expect(tab.page.locator(f"#{form}")).to_be_visible()
    assert tab.page.input_value(f"#{field}") == "13", "Chromium fills in what was typed, into a fresh page too"
    return tab, form, used


def send(tab, form):
    tab.button(form).click()
    expect(tab.page.locator("h1")).to_contain_text("Order number")


@pytest.mark.case("S1", "FORM-06")
@pytest.mark.parametrize(("path", "field", "cookie_changes"), TOKEN_COMES_BACK)
def test_back_brings_the_used_token_and_no_second_order(shop, new_tab, path, field, cookie_changes):
    tab, form, used = order_and_go_back(new_tab, path, field, cookie_changes)
    assert tab.token(form) == used
    send(tab, form)
    assert shop.made() == {form: 1}


@pytest.mark.parametrize(("path", "field", "cookie_changes"), PAGE_IS_FRESH)
def test_back_fetches_a_fresh_token_and_invites_a_second_order(shop, new_tab, path, field, cookie_changes):
    tab, form, used = order_and_go_back(new_tab, path, field, cookie_changes)
    assert tab.token(form) != used
    send(tab, form)
    assert shop.made() == {form: 2}
