"""What a form asks for, and making it: the part of the shop that knows nothing of tokens."""

from __future__ import annotations

import time

from flask import current_app, flash, redirect, request, session, url_for
from flask.typing import ResponseReturnValue

from .models import Order, place_order


class TerminalDown(Exception):
    """The card terminal did not answer; no money moved."""


def charge_card() -> None:
    """Charge the visitor's card, over a bad line: every first attempt fails, the one after it works.

    :raises TerminalDown: at a visitor's first, third, fifth … attempt.
    """
    session["attempts"] = session.get("attempts", 0) + 1
    if session["attempts"] % 2:
        raise TerminalDown


def sell(form: str) -> Order:
    """Make the order that the request asks for."""
    quantity = request.form.get("quantity", 1, type=int)
    return place_order(form, f"{quantity} × {request.form['item'][:60]}")


def sell_slowly(form: str) -> Order:
    """The same, after a pause in which people click again."""
    time.sleep(current_app.config["SHOP_DELAY"])
    return sell(form)


def sell_gift() -> Order:
    return place_order("gift", f"Gift card for {request.form['name'][:60]}, {euros()} €")


def euros() -> int:
    return request.form.get("euros", 0, type=int)


def mistakes() -> dict[str, str]:
    """What is wrong with a gift card, field by field."""
    found = {}
    if not request.form.get("name", "").strip():
        found["name"] = "Who is it for? Please enter a name."
    if not 5 <= euros() <= 100:
        found["euros"] = "A gift card carries between 5 and 100 euros."
    return found


def thank_for(order: Order) -> ResponseReturnValue:
    """Send the browser to the order's own page."""
    flash(f"Thank you! This is order number {order.id}.")
    return redirect(url_for(".show_order", number=order.id), code=303)
