"""Bodies of requests with a key: broken JSON, chunks, and the bytes that the view gets to see."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import request

from flask_idempotent import idempotent
from tests.apps.till import KEY_HEADER
from tests.helpers import REPLAYED, Ledger, assert_refused, assert_repeated, make_app
from tests.live import HOST

JSON = {"content_type": "application/json"}


@pytest.mark.case("S8", "BODY-05")
@pytest.mark.parametrize(
    "body", [b"{", b"[1,", b"nope", b"\xff\xfe", b"", b'{"a": NaN}', b"[" * 100_000], ids=lambda body: repr(body[:9])
)
def test_broken_json_with_a_key_belongs_to_the_view(any_store: Any, policy: str, body: bytes):
    app, ledger = make_app(any_store, ON_DUPLICATE=policy), Ledger()

    @app.post("/tolerant")
    @idempotent(source="header")
    def tolerant() -> dict[str, Any]:
        ledger.add()
        return {"length": len(request.get_data())}

    client = app.test_client()
    sent = {"headers": {KEY_HEADER: "k"}, **JSON}
    first = client.post("/tolerant", data=body, **sent)
    assert (first.status_code, first.get_json()["length"]) == (200, len(body))
    assert_repeated(client.post("/tolerant", data=body, **sent), first, policy)
    assert_refused(client.post("/tolerant", data=body + b" }", **sent), "key_reused", 422)
    assert len(ledger) == 1


@pytest.mark.case("S8", "BODY-05")
def test_broken_json_that_should_hold_the_key_has_none(any_store: Any):
    app, ledger = make_app(any_store), Ledger()
    for path, options in (("param", {"source": "param", "name": "no"}), ("expression", {"key": "json.no"})):

        @app.post(f"/{path}", endpoint=path)
        @idempotent(**options)
        def order() -> tuple[str, int]:
            return f"order {ledger.add()}", 201

    client = app.test_client()
    for path in ("/param", "/expression"):
        for body in (b'{"no":"k"', b'["no"]', b"", b"\xff", b"null", b"[" * 10_000):
            assert_refused(client.post(path, data=body, **JSON), "key_missing", 400)
        assert_refused(client.post(path, data=b'{"no":"k"}', content_type="text/plain"), "key_missing", 400)
    assert len(ledger) == 0


@pytest.mark.case("S8", "BODY-01")
@pytest.mark.parametrize("which", ["header", "param", "expression"])
@pytest.mark.parametrize("how", ["stream", "data", "json", "form"])
def test_the_view_finds_the_body_as_it_was_sent(any_store: Any, which: str, how: str):
    app, seen = make_app(any_store), []
    read = {
        "stream": lambda: request.stream.read(),
        "data": lambda: request.get_data(),
        "json": lambda: request.get_json(),
        "form": lambda: request.form.to_dict(flat=False),
    }[how]
    computed = {"key": "form.no" if how == "form" else "json.no"}
    options = computed if which == "expression" else {"source": which, "name": "no" if which == "param" else None}

    @app.post("/orders")
    @idempotent(**options)
    def order() -> str:
        seen.append(read())
        return "made"

    body = b"no=k&a=1&a=%32" if how == "form" else b'{ "no": "k", "a" : 1.50 }'
    kind = "application/x-www-form-urlencoded" if how == "form" else "application/json"
    sent = {"data": body, "content_type": kind, "headers": {KEY_HEADER: "k"}}
    client = app.test_client()
    first = client.post("/orders", **sent)
    expected = {"json": {"no": "k", "a": 1.5}, "form": {"no": ["k"], "a": ["1", "2"]}}.get(how, body)
    assert seen == [expected]
    assert_repeated(client.post("/orders", **sent), first)
    assert len(seen) == 1


# --- chunks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def connection(gunicorn: Any, redis_url: str, tmp_path: Path) -> Iterator[http.client.HTTPConnection]:
    """To ``tests.apps.till`` behind a real server."""
    env = {"STORE": redis_url, "LEDGER": str(tmp_path / "ledger")}
    server = gunicorn("tests.apps.till:create_app()", env=env)
    made = http.client.HTTPConnection(HOST, server.port, timeout=10)
    yield made
    made.close()


@pytest.mark.case("S8", "BODY-03")
def test_a_chunked_body_with_a_key_is_replayed(connection: http.client.HTTPConnection, tmp_path: Path):
    def post(path: str, key: str | None, body: bytes, size: int) -> tuple[int, bool, Any]:
        pieces = (body[start : start + size] for start in range(0, len(body), size))
        headers = {"Content-Type": "application/json", **({KEY_HEADER: key} if key else {})}
        connection.request("POST", path, pieces, headers, encode_chunked=True)
        answer = connection.getresponse()
        return answer.status, REPLAYED in answer.headers, json.loads(answer.read())

    body = json.dumps({"idempotency_key": "p", "items": list(range(1000))}).encode()
    for number, (path, key) in enumerate([("/orders", "k"), ("/param", None)], start=1):
        made = {"path": path, "number": number}
        assert post(path, key, body, 100) == (201, False, made)
        assert post(path, key, body, 999) == (201, True, made)
    assert len(Ledger(tmp_path / "ledger")) == 2
