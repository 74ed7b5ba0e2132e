"""The main job, seen with a visitor's eyes: a real browser, the running demo, its own Valkey."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

ORDER_PAGE = re.compile(r"/orders/\d+$")


def heading(tab):
    return tab.page.locator("h1")


def see(tab, form, count):
    """Wait until the list beside the page shows so many orders of a form."""
    expect(tab.page.locator(f"[data-count={form}]")).to_have_text(str(count))


def send(tab, form):
    """Click a form's button and wait for the order's page; return its address."""
    tab.button(form).click()
    expect(tab.page).to_have_url(ORDER_PAGE)
    return tab.page.url


def go_back(tab, form):
    tab.page.go_back()
    expect(tab.page.locator(f"#{form}")).to_be_visible()


@pytest.mark.case("S1", "S3", "S4", "S6", "FORM-02")
def test_a_double_click_makes_one_order(shop, tab):
    tab.open("/order").double_click(tab.button("order"))
    expect(heading(tab)).to_have_text("Your order is being made")
    see(tab, "order", 1)
    assert len(tab.posts) == 2
    assert tab.posts[0].post_data == tab.posts[1].post_data
    (second,) = tab.answers  # the first one's answer was given up by the browser at the second click
    assert (second.status, second.headers["retry-after"]) == (409, "2")
    assert "fail" not in tab.page.locator("main").inner_text().lower()
    assert shop.made() == {"order": 1}


def test_a_double_click_without_protection_makes_two(shop, tab):
    """The twin shows that these tests can see doubles."""
    tab.open("/order").double_click(tab.button("twin"))
    see(tab, "twin", 2)
    assert len(tab.posts) == 2
    assert shop.made() == {"twin": 2}


@pytest.mark.case("S6", "FORM-01")
def test_back_and_sent_again_unchanged_shows_the_first_answer(shop, tab):
    tab.open("/order").page.fill("#order-quantity", "3")
    first = send(tab, "order")
    go_back(tab, "order")
    assert tab.page.input_value("#order-quantity") == "3"
    assert send(tab, "order") == first
    expect(tab.page.locator(".flash")).to_have_text(re.compile("Thank you!"))
    assert [answer.status for answer in tab.answers] == [303, 303]
    assert tab.answers[1].headers["idempotent-replayed"] == "true"
    assert shop.made() == {"order": 1}


@pytest.mark.case("S6", "FORM-06")
def test_back_and_sent_again_changed_is_refused(shop, tab):
    send(tab.open("/order"), "order")
    go_back(tab, "order")
    tab.page.fill("#order-quantity", "7")
    tab.button("order").click()
    expect(tab.page.locator("body")).to_contain_text("Open the form again")
    expect(tab.page.locator("body")).to_contain_text("was not saved")
    assert tab.answers[1].status == 422
    assert shop.made() == {"order": 1}
    tab.page.get_by_role("link", name="Open the form again").click()
    send(tab, "order")
    assert shop.made() == {"order": 2}


@pytest.mark.case("S6", "FORM-07")
def test_reloading_the_answer_to_a_post_leaves_one_tip(shop, tab):
    tab.open("/tip").button("tip").click()
    expect(heading(tab)).to_have_text("Thank you for the tip")
    shown = tab.page.locator(".message").inner_text()
    for _ in range(2):
        tab.page.reload()
        assert tab.page.locator(".message").inner_text() == shown
    assert [answer.status for answer in tab.answers] == [200, 200, 200]
    assert shop.made() == {"tip": 1}


@pytest.mark.case("S1", "FORM-04")
def test_two_tabs_make_two_orders_and_no_third(shop, new_tab):
    older, newer = new_tab().open("/two"), new_tab().open("/two")
    pages = {tab: send(tab, "coffee") for tab in (newer, older)}
    assert shop.made() == {"coffee": 2}
    for tab in (older, newer):
        go_back(tab, "coffee")
        # The HTTP cache holds one page for both tabs, so that Back shows the newer one's form in either.
        assert send(tab, "coffee") in pages.values()
    assert shop.made() == {"coffee": 2}


@pytest.mark.case("S1", "FORM-05")
def test_two_forms_on_a_page_do_not_disturb_each_other(shop, tab):
    pages = []
    for form in ("coffee", "cake", "coffee", "cake"):
        if not pages:
            tab.open("/two")
        else:
            go_back(tab, form)
        pages.append(send(tab, form))
    assert pages[:2] == pages[2:]
    assert shop.made() == {"coffee": 1, "cake": 1}


@pytest.mark.case("S5", "FAIL-01")
def test_a_payment_that_failed_is_sent_again_and_made_once(shop, tab):
    tab.open("/pay").button("pay").click()
    expect(heading(tab)).to_have_text("The card terminal did not answer")
    assert shop.made() == {}
    go_back(tab, "pay")
    order = send(tab, "pay")
    go_back(tab, "pay")
    assert send(tab, "pay") == order
    assert len({request.post_data for request in tab.posts}) == 1, "the same token three times"
    assert [answer.status for answer in tab.answers] == [503, 303, 303]
    assert shop.made() == {"pay": 1}


@pytest.mark.case("S5", "FAIL-01")
def test_a_failed_payment_goes_through_at_a_reload(shop, tab):
    tab.open("/pay").button("pay").click()
    expect(heading(tab)).to_have_text("The card terminal did not answer")
    tab.page.reload()
    expect(tab.page).to_have_url(ORDER_PAGE)
    again = tab.page.request.post(tab.posts[0].url, data=tab.posts[0].post_data, headers=tab.posts[0].headers)
    assert again.url == tab.page.url
    assert shop.made() == {"pay": 1}


@pytest.mark.parametrize("path", ["/gift", "/gift-200"])
@pytest.mark.parametrize("way", ["in the page that came back", "in the first page, by Back"])
@pytest.mark.case("S5", "FORM-08")
def test_a_corrected_form_makes_one_order(shop, tab, path, way):
    tab.open(path).button("gift").click()
    expect(tab.page.locator(".error")).to_have_text("Who is it for? Please enter a name.")
    if "Back" in way:
        go_back(tab, "gift")
        expect(tab.page.locator(".error")).to_have_count(0)
    tab.page.fill("#gift-name", "Ann")
    order = send(tab, "gift")
    assert shop.made() == {"gift": 1}
    corrected = tab.posts[-1]
    again = tab.page.request.post(corrected.url, data=corrected.post_data, headers=corrected.headers)
    assert again.url == order
    assert shop.made() == {"gift": 1}


@pytest.mark.case("S2", "S3", "FORM-11")
def test_a_form_sent_by_script_twice_makes_one_order(shop, tab):
    fetched = []
    tab.page.on("request", lambda request: fetched.append(request) if "/idempotency/token" in request.url else None)
    tab.open("/script")
    expect(tab.button("script")).to_be_enabled()
    tab.double_click(tab.button("script"))
    answer = tab.page.locator("#script-answer")
    expect(answer).to_have_text(re.compile(r"Order number \d+ \(the first answer again\)\."))
    assert shop.made() == {"script": 1}
    assert len(fetched) == 1
    assert len({request.headers["idempotency-token"] for request in tab.posts}) == 1

    tab.page.fill("#script-quantity", "5")
    tab.button("script").click()
    expect(answer).to_contain_text("other content")
    assert shop.made() == {"script": 1}

    tab.page.get_by_role("button", name="New order").click()
    expect(answer).to_have_text("")
    tab.button("script").click()
    see(tab, "script", 2)
