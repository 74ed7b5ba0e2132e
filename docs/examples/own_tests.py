"""Tests of an app that uses flask-idempotency, for pytest."""

import re

import pytest
from flask import Flask, redirect, render_template_string

from flask_idempotent import Idempotency, idempotent
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock

orders = []


def create_app(config=None, store=None):
    app = Flask(__name__)
    app.config.from_mapping(config or {})
    Idempotency(app, store=store)

    @app.get("/order")
    def form():
        return render_template_string("<form method=post>{{ idempotency_token() }}<button>Order</button></form>")

    @app.post("/order")
    @idempotent
    def create_order():
        orders.append("one")
        return redirect("/orders")

    return app


@pytest.fixture(autouse=True)
def no_orders_yet():
    orders.clear()


# [start-token]
def fetch_token(client):
    page = client.get("/order").text
    return re.search(r'name="idempotency_token" value="([^"]+)"', page)[1]


def test_a_double_click_orders_once():
    client = create_app().test_client()
    form = {"idempotency_token": fetch_token(client)}
    first, second = (client.post("/order", data=form) for _ in range(2))
    assert first.status_code == second.status_code == 302
    assert second.headers["Idempotent-Replayed"] == "true"
    assert orders == ["one"]
    # [end-token]


# [start-clock]
def test_a_form_that_was_open_for_too_long():
    clock = FakeClock()
    client = create_app(store=MemoryStore(clock=clock)).test_client()
    token = fetch_token(client)
    clock.advance(2 * 3600)
    answer = client.post("/order", data={"idempotency_token": token})
    assert answer.status_code == 409
    assert answer.json["code"] == "token_unknown"
    assert orders == []
    # [end-clock]


# [start-off]
def test_the_view_alone():
    client = create_app({"IDEMPOTENCY_ENABLED": False}).test_client()
    assert client.post("/order").status_code == 302
    assert client.post("/order").status_code == 302
    assert orders == ["one", "one"]
    # [end-off]
