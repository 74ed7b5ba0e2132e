"""The shop's JSON API. No form and no token here: who calls brings the key."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, request, url_for
from flask.typing import ResponseReturnValue

from flask_idempotent import idempotent

from .models import place_order

api = Blueprint("api", __name__, url_prefix="/api")


# [start-orders]
@api.post("/orders")
@idempotent(source="header")
def create_order() -> ResponseReturnValue:
    asked = request.get_json()
    if not _is_order(asked):
        return {"error": "An order has an item and a quantity from 1 to 99."}, 422
    order = place_order("api", f"{asked.get('quantity', 1)} × {asked['item']}")
    here = url_for("shop.show_order", number=order.id)
    return {"number": order.id, "what": order.what}, 201, {"Location": here}
    # [end-orders]


# [start-callback]
@api.post("/payments/callback")
@idempotent(key="json.transaction", ignore=("attempt", "sent_at"))
def payment_callback() -> ResponseReturnValue:
    """Called by the payment provider, again and again until it gets a 2xx."""
    told = request.get_json()
    if not _is_text(told.get("amount")):
        return {"error": "A payment has an amount."}, 422
    what = f"Payment {told['transaction']} of {told['amount']}"
    order = place_order("callback", what)
    return {"booked_as": order.id}
    # [end-callback]


def _is_order(asked: Any) -> bool:
    if not isinstance(asked, dict) or not _is_text(asked.get("item")):
        return False
    quantity = asked.get("quantity", 1)
    return isinstance(quantity, int) and 1 <= quantity < 100


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 60 and value.isprintable()
