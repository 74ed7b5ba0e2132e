"""Settings for orders and payments."""

import os

from flask import Flask, current_app, g, request

from flask_idempotent import Idempotency, current_claim, idempotent

charges, orders = [], []

# [start-settings]
app = Flask(__name__)
app.config["IDEMPOTENCY_STORE"] = os.environ.get("REDIS_URL", "redis://localhost:6379")
app.config["IDEMPOTENCY_PRINCIPAL"] = lambda: g.customer
Idempotency(app)


@app.before_request
def who():
    g.customer = request.headers.get("X-Customer")  # here your login


@app.post("/orders")
@idempotent(
    source=("token", "header"),
    scene="order.create",
    wait=2,
    description="new order",
)
def create_order():
    orders.append(g.customer)
    return {"number": len(orders)}, 201


@app.post("/orders/<int:order>/payment")
@idempotent(
    source="header",
    scene="order.pay",
    lock="('order', order)",
    ttl=7 * 24 * 3600,
    restore_on_error=False,
    description="payment",
)
def pay(order):
    charge(order)
    current_claim.keep()  # from here on the money has moved, whatever fails below
    tell_the_customer()
    return {"paid": order}, 201
    # [end-settings]


def charge(order):
    if current_app.config.get("BANK_IS_DOWN"):
        raise ConnectionError("nobody knows whether the charge was made")
    charges.append(order)


def tell_the_customer():
    if current_app.config.get("MAIL_IS_DOWN"):
        raise ConnectionError("no mail today")
