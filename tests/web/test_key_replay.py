"""What a duplicate by key is shown: the same as by token (test_replay.py), to whom a key may show it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Response, g, make_response, session

from flask_idempotent import idempotent
from tests.apps.answers import (
    EVERY_BYTE,
    KEPT,
    STREAMED,
    a_file,
    answering_by_key,
    made,
    send_with_key,
)
from tests.helpers import REPLAYED, Ledger, assert_refused, assert_repeated, make_app
from tests.servers import RedisServer

DOORS: dict[str, dict[str, Any]] = {
    "header": {"source": "header"},
    "another header": {"source": "header", "name": "X-Request-Id"},
    "parameter": {"source": "param", "name": "order_no"},
    "expression": {"key": "(form.shop, form.order_no)"},
    "callable": {"key": lambda: "one-key-for-all"},
    "token or header": {"source": ("token", "header")},
}


# -- headers -------------------------------------------------------------------------------------------------------


@pytest.mark.case("REPLAY-01", "S8")
@pytest.mark.parametrize("options", DOORS.values(), ids=DOORS)
def test_headers_that_matter_come_back_by_every_kind_of_key(any_store: Any, options: Any) -> None:
    headers = {
        "Location": "/orders/7",
        "ETag": '"v7"',
        "Link": '</orders/7>; rel="self"',
        "Content-Language": "de",
        "X-Resource-Version": "7",
    }
    client, ledger = answering_by_key(lambda: ({"id": 7}, 201, headers), any_store, options=options)

    first, again = send_with_key(client), send_with_key(client)

    assert first.status_code == 201
    assert_repeated(again, first)
    assert {name: again.headers.get(name) for name in headers} == headers
    assert len(ledger) == 1


def with_cookies() -> Response:
    session["cart"] = "secret-in-session"
    response = make_response("made", 201)
    response.set_cookie("tracking", "secret-cookie-one")
    response.set_cookie("csrf", "secret-cookie-two", httponly=True)
    for name in ("WWW-Authenticate", "Authorization", "Proxy-Authenticate"):
        response.headers[name] = "secret"
    return response


@pytest.mark.case("REPLAY-02")
@pytest.mark.parametrize("principal", [None, lambda: "ann"], ids=["nobody", "ann"])
@pytest.mark.parametrize("jar", ["the same jar", "an empty jar"])
def test_cookies_do_not_come_back_and_are_never_stored(valkey: RedisServer, jar: str, principal: Any) -> None:
    client, ledger = answering_by_key(with_cookies, valkey.url, PRINCIPAL=principal)
    first = send_with_key(client)
    assert len(first.headers.getlist("Set-Cookie")) == 3

    again = send_with_key(client if jar == "the same jar" else client.application.test_client())

    if jar == "the same jar" and principal is None:
        assert_refused(again, "duplicate")  # its cookies may be anybody's
        assert "made" not in again.text
    else:
        assert_repeated(again, first)
    for name in ("Set-Cookie", "WWW-Authenticate", "Authorization", "Proxy-Authenticate"):
        assert name not in again.headers
    stored = b"".join(valkey.control.get(key) for key in valkey.control.scan_iter())
    assert b"made" in stored
    for secret in (b"secret", b"Set-Cookie", b"set-cookie", b"WWW-Authenticate"):
        assert secret not in stored
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-08", "REPLAY-10")
def test_the_marker_is_on_the_repeat_only_and_the_rest_is_fresh(any_store: Any) -> None:
    app, ledger, requests = make_app(any_store), Ledger(), iter(range(1, 100))

    @app.before_request
    def number() -> None:
        g.number = next(requests)

    @app.after_request
    def stamp(response: Response) -> Response:
        response.headers.add("X-Request-ID", str(g.number))
        response.headers.add("X-RateLimit-Remaining", str(100 - g.number))
        return response

    @app.post("/work")
    @idempotent(source="header")
    def work() -> Any:
        return {"effect": ledger.add()}, 201, {"Date": "Mon, 01 Jan 2024 00:00:00 GMT", "X-View": "kept"}

    first, again, third = (send_with_key(app.test_client()) for _ in range(3))

    assert REPLAYED not in first.headers
    for number_now, repeat in ((2, again), (3, third)):
        assert_repeated(repeat, first)
        assert repeat.headers.getlist(REPLAYED) == ["true"]
        assert repeat.headers.getlist("X-Request-ID") == [str(number_now)]
        assert repeat.headers.getlist("X-RateLimit-Remaining") == [str(100 - number_now)]
        assert "2024" not in repeat.headers.get("Date", "")
        assert repeat.headers["X-View"] == "kept"
    assert len(ledger) == 1


# -- every shape of an answer --------------------------------------------------------------------------------------


@pytest.mark.case("REPLAY-03", "REPLAY-04", "REPLAY-07")
@pytest.mark.parametrize("make", KEPT.values(), ids=KEPT)
def test_every_shape_of_an_answer_comes_back_as_it_was(any_store: Any, make: Callable[[], Any]) -> None:
    client, ledger = answering_by_key(make, any_store)

    first, again = send_with_key(client), send_with_key(client)

    assert_repeated(again, first)
    assert again.status == first.status or again.status_code == 299  # a phrase of its own is not kept
    left = {name: first.headers.getlist(name) for name, _ in first.headers}
    assert {name: again.headers.getlist(name) for name in left} == left
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-04")
@pytest.mark.parametrize("decode_responses", [False, True])
def test_binary_answers_survive_every_server_and_client(redis_server: RedisServer, decode_responses: bool) -> None:
    store = redis_server.client(decode_responses=decode_responses)
    client, ledger = answering_by_key(made(EVERY_BYTE * 40, mimetype="image/png"), store)

    first, again = send_with_key(client), send_with_key(client)

    assert first.data == EVERY_BYTE * 40
    assert_repeated(again, first)
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-03", "REPLAY-05")
@pytest.mark.parametrize(("make", "body"), STREAMED.values(), ids=STREAMED)
def test_a_streamed_answer_is_done_without_an_answer(any_store: Any, make: Callable[[], Any], body: bytes) -> None:
    client, ledger = answering_by_key(make, any_store)

    first = send_with_key(client)

    assert (first.status_code, first.data) == (200, body)
    assert_refused(send_with_key(client), "response_unavailable")
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-05")
@pytest.mark.parametrize("kind", ["path", "BytesIO"])
@pytest.mark.parametrize("headers", [{}, {"Range": "bytes=2-5"}, {"If-None-Match": "*"}], ids=str)
def test_a_sent_file_reaches_its_caller_and_never_comes_back_as_a_slice(
    any_store: Any, tmp_path: Path, kind: str, headers: dict[str, str]
) -> None:
    client, ledger = answering_by_key(a_file(kind, tmp_path), any_store)

    first, again = send_with_key(client), send_with_key(client, headers=headers)

    assert (first.status_code, first.data) == (200, EVERY_BYTE)
    first.close()
    again.close()  # a file, if the guard has failed; left open, it would be the next test's error
    assert_refused(again, "response_unavailable")
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-06")
def test_an_answer_too_large_to_keep_reaches_its_caller_and_is_done(valkey: RedisServer) -> None:
    size = 20 * 1024 * 1024
    client, ledger = answering_by_key(lambda: b"x" * size, valkey.url)

    first = send_with_key(client)

    assert (first.status_code, len(first.data)) == (200, size)
    assert_refused(send_with_key(client), "response_unavailable")
    assert len(ledger) == 1
    assert sum(valkey.control.strlen(key) for key in valkey.control.scan_iter()) < 1000
