"""The shop's JSON API, and the curl lines that the pages and the welcome show of it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import Flask
from flask.testing import FlaskClient

from example_app.__main__ import WELCOME
from example_app.models import db
from tests.apps import switched_off
from tests.example.test_shop import made, make_shop
from tests.helpers import REPLAYED, assert_refused, assert_repeated
from tests.webservers import WebServer

ROOT = Path(__file__).parents[2]
SHOP = "http://127.0.0.1:8321"
KEY = {"Idempotency-Key": "order-1"}
TOLD = {"transaction": "T-1001", "amount": "12.50 EUR", "attempt": 1, "sent_at": "10:00:00"}


@pytest.fixture
def shop() -> Iterator[Flask]:
    app = make_shop()
    yield app
    with app.app_context():
        db.engine.dispose()


@pytest.fixture
def client(shop: Flask) -> FlaskClient:
    return shop.test_client()


@pytest.mark.case("S8")
def test_an_order_is_made_once_for_each_key(shop: Flask, client: FlaskClient) -> None:
    first, second = (client.post("/api/orders", json={"item": "Tea"}, headers=KEY) for _ in range(2))
    assert (first.status_code, first.json, first.location) == (201, {"number": 1, "what": "1 × Tea"}, "/orders/1")
    assert_repeated(second, first)
    assert client.post("/api/orders", json={"item": "Tea"}, headers={"Idempotency-Key": "2"}).location == "/orders/2"
    assert_refused(client.post("/api/orders", json={"item": "Cake"}, headers=KEY), "key_reused", 422)
    assert_refused(client.post("/api/orders", json={"item": "Tea"}), "key_missing", 400)
    assert made(shop) == {"api": 2}


@pytest.mark.case("S5")
def test_a_corrected_order_goes_through_under_the_same_key(shop: Flask, client: FlaskClient) -> None:
    asked = ({"item": "Tea", "quantity": 100}, {"item": "Tea", "quantity": 9}, {"item": "Tea", "quantity": 9})
    answers = [client.post("/api/orders", json=json, headers=KEY) for json in asked]
    assert [answer.status_code for answer in answers] == [422, 201, 201]
    assert made(shop) == {"api": 1}


@pytest.mark.case("S19")
def test_a_payment_callback_books_once_however_often_the_provider_calls(shop: Flask, client: FlaskClient) -> None:
    calls = (TOLD, {**TOLD, "attempt": 2, "sent_at": "10:05:00"}, {**TOLD, "attempt": 3, "sent_at": "11:00:00"})
    answers = [client.post("/api/payments/callback", json=call) for call in calls]
    assert [answer.json for answer in answers] == [{"booked_as": 1}] * 3
    assert [REPLAYED in answer.headers for answer in answers] == [False, True, True]
    other = client.post("/api/payments/callback", json={**TOLD, "amount": "99.00 EUR"})
    assert_refused(other, "key_reused", 422)
    missing = client.post("/api/payments/callback", json={"amount": "12.50 EUR"})
    assert_refused(missing, "key_missing", 400)
    assert "json.transaction" in missing.json["detail"]
    assert made(shop) == {"callback": 1}


def curl_lines(text: str) -> list[list[str]]:
    """The words of each curl command in a text, in which a backslash continues a line."""
    commands = re.findall(r"^ +(curl (?:.*\\\n)*.*)$", text, re.MULTILINE)
    return [shlex.split(command.replace("\\\n", " ")) for command in commands]


def sent(words: list[str], url: str) -> requests.Response:
    """Send what curl would send; an option that is not known here is an error."""
    headers, data, address = {}, None, ""
    rest = iter(words[1:])
    for word in rest:
        match word:
            case "-i":
                pass
            case "-H":
                name, value = next(rest).split(": ", 1)
                headers[name] = value
            case "-d":
                data = next(rest).encode()
            case _:
                assert not word.startswith("-"), word
                assert not address, word
                address = word
    assert address.startswith(SHOP), address
    return requests.post(address.replace(SHOP, url), data, headers=headers, timeout=10)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    argv = [sys.executable, "-m", "example_app", "--no-browser", "--port", "{port}", "--store", "memory://"]
    env = {"FLASK_IDEMPOTENCY_ENABLED": "false"} if switched_off() else {}
    server = WebServer("shop", argv, tmp_path_factory.mktemp("shop"), env).start()
    yield server
    server.stop()


def ledger(server: WebServer) -> int:
    found = re.search(r'data-total="(\d+)"', requests.get(f"{server.url}/orders", timeout=10).text)
    assert found
    return int(found[1])


TEXTS: dict[str, Any] = {
    "README.md": lambda: (ROOT / "README.md").read_text(encoding="utf-8"),
    "guide-apis": lambda: (ROOT / "docs" / "guide-apis.rst").read_text(encoding="utf-8"),
    "guide-webhooks": lambda: (ROOT / "docs" / "guide-webhooks.rst").read_text(encoding="utf-8"),
    "welcome": lambda: WELCOME.format(url=SHOP, store=""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_each_curl_line_runs_once_when_it_is_sent_twice(running: WebServer, name: str) -> None:
    lines = curl_lines(TEXTS[name]())
    assert lines
    requests.post(f"{running.url}/reset", timeout=10)
    for number, line in enumerate(lines, 1):
        # The texts use the same keys: each has name spaces of its own here.
        own = [word.replace("order-1", f"{name}-order-1").replace("T-1001", f"{name}-T-1001") for word in line]
        first, second = (sent(own, running.url) for _ in range(2))
        assert first.ok, (line, first.text)
        assert (second.status_code, second.content) == (first.status_code, first.content)
        assert (REPLAYED in first.headers, REPLAYED in second.headers) == (False, True)
        assert ledger(running) == number
