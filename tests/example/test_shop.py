"""The example shop, without a browser: its pages, its forms, and what the documentation shows of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

import example_app
from example_app import create_app
from example_app.models import db, orders, tally
from tests.helpers import FIELD, REPLAYED, assert_refused, token_of, tokens_of

EXAMPLE = Path(example_app.__file__).parent
PAGES = {"/": 0, "/order": 1, "/pay": 1, "/two": 2, "/script": 0, "/gift": 1, "/gift-200": 1, "/tip": 1}
DRINK = {"item": "Espresso", "quantity": "2"}
FORMS = {
    "/orders": DRINK,
    "/coffee": DRINK,
    "/cake": DRINK,
    "/script": DRINK,
    "/gift": {"name": "Ann", "euros": "25"},
    "/gift-200": {"name": "Ann", "euros": "25"},
    "/tip": {"euros": "2"},
}


def make_shop(**config: Any) -> Flask:
    return create_app({"TESTING": True, "IDEMPOTENCY_STORE": "memory://", "SHOP_DELAY": 0, **config})


@pytest.fixture
def shop() -> Iterator[Flask]:
    app = make_shop()
    yield app
    with app.app_context():
        db.engine.dispose()


@pytest.fixture
def client(shop: Flask) -> FlaskClient:
    return shop.test_client()


def made(app: Flask) -> dict[str, int]:
    with app.app_context():
        return tally()


@pytest.mark.parametrize("path", PAGES)
def test_each_page_shows_its_forms_and_the_list(client: FlaskClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert len(set(tokens_of(page.text))) == PAGES[path]
    assert "Orders really made" in page.text
    assert "Set-Cookie" not in page.headers
    assert page.headers.get("Cache-Control") == ("private, no-cache" if PAGES[path] else None)
    assert "Vary" not in page.headers  # no form page reads the session: Back then finds it in the cache


@pytest.mark.case("S1", "S3")
@pytest.mark.parametrize("path", FORMS)
def test_each_protected_form_runs_once(shop: Flask, client: FlaskClient, path: str) -> None:
    form = {FIELD: token_of(client, "/order"), **FORMS[path]}
    first, second = (client.post(path, data=form) for _ in range(2))
    assert first.status_code in (200, 201, 303)
    assert (second.status_code, second.data, second.location) == (first.status_code, first.data, first.location)
    assert (REPLAYED in first.headers, REPLAYED in second.headers) == (False, True)
    assert sum(made(shop).values()) == 1


def test_the_twin_runs_twice(shop: Flask, client: FlaskClient) -> None:
    answers = [client.post("/orders/unprotected", data=DRINK) for _ in range(2)]
    assert [answer.location for answer in answers] == ["/orders/1", "/orders/2"]
    assert made(shop) == {"twin": 2}


@pytest.mark.case("S5")
def test_the_payment_fails_once_and_the_same_form_works(shop: Flask, client: FlaskClient) -> None:
    form = {FIELD: token_of(client, "/pay"), **DRINK}
    answers = [client.post("/payments", data=form) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [503, 303, 303]
    assert "token is good again" in answers[0].text
    assert answers[1].location == answers[2].location
    assert made(shop) == {"pay": 1}


@pytest.mark.case("S5", "FORM-08")
@pytest.mark.parametrize(("path", "status"), [("/gift", 422), ("/gift-200", 200)])
def test_mistakes_come_back_and_the_token_stays_good(shop: Flask, client: FlaskClient, path: str, status: int) -> None:
    token = token_of(client, path)
    wrong = client.post(path, data={FIELD: token, "name": "<Ann>", "euros": "3"})
    assert wrong.status_code == status
    assert "between 5 and 100" in wrong.text
    assert 'value="&lt;Ann&gt;"' in wrong.text
    assert len(tokens_of(wrong.text)) == 1
    assert made(shop) == {}
    right = [client.post(path, data={FIELD: token, "name": "Ann", "euros": "30"}) for _ in range(2)]
    assert [answer.location for answer in right] == ["/orders/1", "/orders/1"]
    assert made(shop) == {"gift": 1}


@pytest.mark.case("S2", "S3")
def test_a_script_fetches_its_token(shop: Flask, client: FlaskClient) -> None:
    issued = client.get("/idempotency/token").json
    headers = {issued["header"]: issued["token"], "Accept": "application/json"}
    answers = [client.post("/script", data=DRINK, headers=headers) for _ in range(2)]
    assert [answer.json for answer in answers] == [{"number": 1, "what": "2 × Espresso"}] * 2
    assert_refused(client.post("/script", data={**DRINK, "quantity": "3"}, headers=headers), "token_reused", 422)
    assert made(shop) == {"script": 1}


@pytest.mark.case("FORM-02", "FORM-03")
def test_a_second_click_gets_the_shop_s_own_page(shop: Flask, client: FlaskClient, monkeypatch: Any) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def pause(_seconds: float) -> None:
        entered.set()
        assert go_on.wait(10)

    monkeypatch.setattr("example_app.checkout.time", SimpleNamespace(sleep=pause))
    form = {FIELD: token_of(client, "/order"), **DRINK}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: shop.test_client().post("/orders", data=form))
        try:
            assert entered.wait(10)
            page = shop.test_client().post("/orders", data=form, headers={"Accept": "text/html"})
            answer = shop.test_client().post("/orders", data=form, headers={"Accept": "application/json"})
        finally:
            go_on.set()
        assert first.result(10).status_code == 303
    assert "Your order is being made" in page.text
    assert_refused(answer, "in_progress")
    assert page.status_code == 409
    assert page.headers["Retry-After"] == answer.headers["Retry-After"]
    assert made(shop) == {"order": 1}


def test_emptying_the_list_uses_no_number_twice(shop: Flask, client: FlaskClient) -> None:
    client.post("/orders/unprotected", data=DRINK)
    assert client.post("/reset").status_code == 204
    assert client.get("/orders/1").status_code == 404
    assert client.post("/orders/unprotected", data=DRINK).location == "/orders/2"
    with shop.app_context():
        assert [order.id for order in orders()] == [2]


def test_each_start_is_fresh_unless_a_database_is_named(tmp_path: Path) -> None:
    named = {"SQLALCHEMY_DATABASE_URI": f"sqlite:///{tmp_path / 'kept.sqlite3'}"}
    counts = []
    for config in ({}, {}, named, named):
        app = make_shop(**config)
        app.test_client().post("/orders/unprotected", data=DRINK)
        counts.append(made(app)["twin"])
        with app.app_context():
            db.engine.dispose()
    assert counts == [1, 1, 1, 2]


def test_cache_experiments(client: FlaskClient) -> None:
    assert "no-store" in client.get("/order?cache=no-store").headers["Cache-Control"]
    assert client.get("/order?cache=vary").headers["Vary"] == "Cookie"


def test_what_the_documentation_shows_is_there() -> None:
    for name, path in (
        ("setup", "__init__.py"),
        ("form", "views.py"),
        ("validation", "views.py"),
        ("validation-200", "views.py"),
        ("in-progress", "views.py"),
        ("orders", "api.py"),
        ("callback", "api.py"),
    ):
        text = (EXAMPLE / path).read_text(encoding="utf-8")
        found = re.search(rf"# \[start-{name}\]\n(.+?)# \[end-{name}\]", text, re.DOTALL)
        assert found, name
        assert 3 <= len(found[1].splitlines()) <= 25, name
    assert "{{ idempotency_token() }}" in (EXAMPLE / "templates" / "order.html").read_text(encoding="utf-8")
