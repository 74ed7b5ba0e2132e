"""The shop's pages. A view is protected by ``@idempotent`` here and ``{{ idempotency_token() }}`` in its form."""

from __future__ import annotations

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from flask_idempotent import InProgress, current_claim, idempotent

from .checkout import TerminalDown, charge_card, euros, mistakes, sell, sell_gift, sell_slowly, thank_for
from .models import Order, db, forget_orders, place_order

shop = Blueprint("shop", __name__)


# [start-form]
@shop.post("/orders")
@idempotent
def create_order() -> ResponseReturnValue:
    order = sell_slowly("order")
    return thank_for(order)
    # [end-form]


@shop.post("/orders/unprotected")
def create_order_unprotected() -> ResponseReturnValue:
    """The twin: the same view, and nobody watches over it."""
    order = sell_slowly("twin")
    return thank_for(order)


@shop.post("/payments")
@idempotent
def pay() -> ResponseReturnValue:
    """The first attempt raises: nothing was written, so the form's token is good again."""
    charge_card()
    return thank_for(sell("pay"))


@shop.post("/coffee")
@idempotent
def create_coffee() -> ResponseReturnValue:
    return thank_for(sell("coffee"))


@shop.post("/cake")
@idempotent
def create_cake() -> ResponseReturnValue:
    return thank_for(sell("cake"))


@shop.post("/script")
@idempotent
def create_by_script() -> ResponseReturnValue:
    """Called by static/order.js, which fetched its token from the token endpoint."""
    order = sell_slowly("script")
    return {"number": order.id, "what": order.what}, 201


# [start-validation]
@shop.post("/gift")
@idempotent
def create_gift() -> ResponseReturnValue:
    if errors := mistakes():
        return render_template("gift.html", errors=errors), 422  # 4xx: nothing happened, the token is good again
    return thank_for(sell_gift())
    # [end-validation]


# [start-validation-200]
@shop.post("/gift-200")
@idempotent
def create_gift_200() -> ResponseReturnValue:
    if errors := mistakes():
        current_claim.restore()  # 200 looks like success: say that nothing happened
        return render_template("gift-200.html", errors=errors)
    return thank_for(sell_gift())
    # [end-validation-200]


@shop.post("/tip")
@idempotent
def give_tip() -> ResponseReturnValue:
    """Answers without a redirect, so that the browser sends the form again at a reload."""
    return render_template("tip_thanks.html", order=place_order("tip", f"Tip of {euros()} €"))


# [start-in-progress]
@shop.errorhandler(InProgress)
def still_working(error: HTTPException) -> ResponseReturnValue:
    """Dress the answer to a second click in the shop's own page; status and headers stay, scripts get their JSON."""
    answer = error.get_response()
    if answer.mimetype == "text/html":
        answer.set_data(render_template("still_working.html"))
    return answer
    # [end-in-progress]


@shop.errorhandler(TerminalDown)
def terminal_down(_error: TerminalDown) -> ResponseReturnValue:
    return render_template("terminal_down.html"), 503


@shop.post("/reset")
def reset() -> ResponseReturnValue:
    """204 leaves the visitor on the page; static/shop.js shows the empty list."""
    forget_orders()
    return "", 204


@shop.get("/", defaults={"name": "home"})
@shop.get("/<any(order, pay, two, script, gift, 'gift-200', tip):name>")
def page(name: str) -> ResponseReturnValue:
    return render_template(f"{name}.html", errors={})


@shop.get("/orders")
def list_orders() -> ResponseReturnValue:
    """The list beside every page, which static/shop.js keeps up to date."""
    return render_template("_orders.html")


@shop.get("/orders/<int:number>")
def show_order(number: int) -> ResponseReturnValue:
    order = db.session.get(Order, number)
    return render_template("order_made.html", order=order, number=number), 200 if order else 404
