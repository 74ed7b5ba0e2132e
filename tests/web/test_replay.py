"""What a finished duplicate is shown: the first answer, without what belonged to the first exchange only."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import (
    Flask,
    Response,
    abort,
    flash,
    g,
    get_flashed_messages,
    jsonify,
    make_response,
    redirect,
    request,
    session,
)
from flask_compress import Compress
from flask_cors import CORS
from markupsafe import Markup
from werkzeug.exceptions import HTTPException

from flask_idempotent import idempotent
from flask_idempotent.stores.memory import MemoryStore
from tests.apps.answers import (
    DAMAGE,
    EVERY_BYTE,
    KEPT,
    STREAMED,
    a_file,
    assert_refused_as_damaged,
    damage_the_record,
    made,
)
from tests.helpers import FIELD, REPLAYED, Ledger, assert_refused, assert_repeated, make_app, token_of
from tests.servers import RedisServer


def answering(make: Callable[[], Any], store: Any = None, *, options: Any = None, **config: Any) -> tuple[Any, Ledger]:
    """A client of an app whose one guarded view answers what ``make`` returns, and the view's ledger."""
    app, ledger = make_app(store, **config), Ledger()

    @app.post("/work")
    @idempotent(**(options or {}))
    def work() -> Any:
        ledger.add()
        return make()

    return app.test_client(), ledger


def send(client: Any, token: str, **options: Any) -> Any:
    return client.post("/work", data={FIELD: token, "amount": "1"}, **options)


# -- headers -------------------------------------------------------------------------------------------------------


@pytest.mark.case("REPLAY-01", "S6")
def test_headers_that_matter_come_back(any_store: Any) -> None:
    headers = {
        "Location": "/orders/7",
        "ETag": '"v7"',
        "Link": '</orders/7>; rel="self"',
        "Content-Language": "de",
        "X-Resource-Version": "7",
        "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
        "Content-Disposition": "inline; filename=order.json",
        "Vary": "Accept-Language",
        "Content-Location": "/orders/7.json",
    }
    client, ledger = answering(lambda: ({"id": 7}, 201, headers), any_store)
    token = token_of(client)

    first, again = send(client, token), send(client, token)

    assert first.status_code == 201
    assert_repeated(again, first)
    assert {name: again.headers.get(name) for name in headers} == headers
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-01")
def test_a_header_that_was_set_twice_comes_back_twice_and_in_order(any_store: Any) -> None:
    def several() -> Response:
        response = make_response("made")
        for number in "213":
            response.headers.add("Link", f"</{number}>; rel=item")
        return response

    client, _ = answering(several, any_store)
    token = token_of(client)

    send(client, token)
    again = send(client, token)

    assert again.headers[REPLAYED] == "true"
    assert again.headers.getlist("Link") == ["</2>; rel=item", "</1>; rel=item", "</3>; rel=item"]


@pytest.mark.case("REPLAY-02", "S6")
@pytest.mark.parametrize("jar", ["the same jar", "an empty jar"])
def test_cookies_and_credentials_do_not_come_back_and_are_never_stored(valkey: RedisServer, jar: str) -> None:
    def with_cookies() -> Response:
        session["cart"] = "secret-in-session"
        response = make_response("made", 201)
        response.set_cookie("tracking", "secret-cookie-one")
        response.set_cookie("csrf", "secret-cookie-two", httponly=True)
        response.headers["WWW-Authenticate"] = 'Bearer realm="secret-realm"'
        response.headers["Authorization"] = "secret-authorization"
        response.headers["Proxy-Authenticate"] = "secret-proxy"
        return response

    client, ledger = answering(with_cookies, valkey.url)
    token = token_of(client)
    first = send(client, token)
    assert len(first.headers.getlist("Set-Cookie")) == 3
    repeater = client if jar == "the same jar" else client.application.test_client()

    again = send(repeater, token)

    # Without its cookies the second caller is not known to be another one: the token is the secret.
    assert_repeated(again, first)
    for name in ("Set-Cookie", "WWW-Authenticate", "Authorization", "Proxy-Authenticate"):
        assert name not in again.headers
    stored = b"".join(valkey.control.get(key) for key in valkey.control.scan_iter())
    assert b"made" in stored
    for secret in (b"secret", b"Set-Cookie", b"set-cookie", b"WWW-Authenticate"):
        assert secret not in stored
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-02")
@pytest.mark.parametrize("name", ["Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "Trailer", "X-Per-Hop"])
def test_headers_of_one_connection_do_not_come_back(name: str) -> None:
    headers = {"Keep-Alive": "timeout=5", "Upgrade": "h2c", "Trailer": "X-Sum", "X-Per-Hop": "1", "X-Kept": "yes"}
    client, _ = answering(lambda: ("made", {**headers, "Connection": "X-Per-Hop"}))
    token = token_of(client)

    first, again = send(client, token), send(client, token)

    assert_repeated(again, first)
    assert again.headers["X-Kept"] == "yes"
    assert name not in again.headers


@pytest.mark.case("REPLAY-08", "S6")
def test_the_marker_is_on_the_repeat_only_and_the_rest_is_fresh(any_store: Any) -> None:
    old = "Mon, 01 Jan 2024 00:00:00 GMT"
    app, ledger = make_app(any_store), Ledger()
    requests = iter(range(1, 100))

    @app.before_request
    def number() -> None:
        g.number = next(requests)

    @app.after_request
    def stamp(response: Response) -> Response:
        response.headers.add("X-Request-ID", str(g.number))
        response.headers["X-RateLimit-Remaining"] = str(100 - g.number)
        return response

    @app.post("/work")
    @idempotent
    def work() -> Any:
        return {"effect": ledger.add()}, 200, {"Date": old, "Server": "of-the-view", "X-View": "kept"}

    client = app.test_client()
    token = token_of(client)  # request 1

    first, again, third = (send(client, token) for _ in range(3))

    assert REPLAYED not in first.headers
    assert first.headers["X-Request-ID"] == "2"
    for number_now, repeat in ((3, again), (4, third)):
        assert_repeated(repeat, first)
        assert repeat.headers.getlist(REPLAYED) == ["true"]
        assert repeat.headers.getlist("X-Request-ID") == [str(number_now)]
        assert repeat.headers["X-RateLimit-Remaining"] == str(100 - number_now)
        assert repeat.headers.get("Date") != old
        assert repeat.headers.get("Server") != "of-the-view"
        assert repeat.headers["X-View"] == "kept"
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-10", "REPLAY-08")
def test_cross_origin_headers_are_those_of_the_one_who_asks_again(any_store: Any) -> None:
    app, ledger = make_app(any_store), Ledger()
    CORS(app, origins=["https://a.example", "https://b.example"], supports_credentials=True)

    @app.after_request
    def hook(response: Response) -> Response:
        response.headers.add("X-Hook", request.headers["Origin"])
        response.headers.add("Vary", "Cookie")
        return response

    @app.post("/work")
    @idempotent
    def work() -> Any:
        ledger.add()
        return "made", {"Vary": "Accept-Language"}

    client = app.test_client()
    token = token_of(client, headers={"Origin": "https://a.example"})

    first = send(client, token, headers={"Origin": "https://a.example"})
    again = send(client, token, headers={"Origin": "https://b.example"})

    assert_repeated(again, first)
    assert first.headers.getlist("Access-Control-Allow-Origin") == ["https://a.example"]
    assert again.headers.getlist("Access-Control-Allow-Origin") == ["https://b.example"]
    assert again.headers.getlist("X-Hook") == ["https://b.example"]
    assert sorted(again.headers.getlist("Vary")) == sorted(first.headers.getlist("Vary"))
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-08")
def test_the_apps_hooks_see_a_replay_whole_as_they_saw_the_first_answer() -> None:
    app = make_app()
    seen: list[tuple[bool, bytes, int | None]] = []

    @app.after_request
    def look(response: Response) -> Response:
        seen.append((response.is_streamed, response.data, response.content_length))
        response.add_etag()
        return response

    @app.post("/work")
    @idempotent
    def work() -> Any:
        return "made"

    client = app.test_client()
    token = token_of(client)
    seen.clear()

    first, again = send(client, token), send(client, token)

    assert_repeated(again, first)
    assert seen == [(False, b"made", 4)] * 2
    assert again.headers["ETag"] == first.headers["ETag"]


@pytest.mark.case("REPLAY-10", "REPLAY-08")
def test_an_answer_is_compressed_for_the_one_who_asks_again(any_store: Any) -> None:
    app, ledger = make_app(any_store, COMPRESS_MIN_SIZE=10), Ledger()
    Compress(app)
    text = "the same again and again " * 100

    @app.post("/work")
    @idempotent
    def work() -> Any:
        ledger.add()
        return text, {"Content-Type": "text/html"}

    client = app.test_client()
    token = token_of(client)

    packed = send(client, token, headers={"Accept-Encoding": "gzip"})
    plain = send(client, token)
    again = send(client, token, headers={"Accept-Encoding": "gzip"})

    assert (packed.headers["Content-Encoding"], gzip.decompress(packed.data).decode()) == ("gzip", text)
    assert ("Content-Encoding" in plain.headers, plain.text) == (False, text)
    assert (again.headers.getlist("Content-Encoding"), gzip.decompress(again.data).decode()) == (["gzip"], text)
    assert again.headers[REPLAYED] == plain.headers[REPLAYED] == "true"
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-02", "REPLAY-08")
def test_cookies_of_the_apps_own_hooks_are_set_afresh(any_store: Any) -> None:
    app, ledger = make_app(any_store), Ledger()
    requests = iter(range(1, 100))

    @app.after_request
    def stamp(response: Response) -> Response:
        number = next(requests)
        session["number"] = number
        response.set_cookie("stamp", str(number))
        return response

    @app.post("/work")
    @idempotent
    def work() -> Any:
        ledger.add()
        response = make_response("made")
        response.set_cookie("of-the-view", "once")
        return response

    client = app.test_client()
    token = token_of(client)  # request 1

    send(client, token)
    again = send(client, token)

    assert again.headers[REPLAYED] == "true"
    names = [line.split(";")[0] for line in again.headers.getlist("Set-Cookie")]
    assert [name for name in names if not name.startswith("session=")] == ["stamp=3"]
    with client.session_transaction() as of_client:
        assert of_client["number"] == 3
    assert len(ledger) == 1


# -- every shape of an answer --------------------------------------------------------------------------------------


@pytest.mark.case("REPLAY-03", "REPLAY-04", "REPLAY-07", "S6")
@pytest.mark.parametrize("make", KEPT.values(), ids=KEPT)
def test_every_shape_of_an_answer_comes_back_as_it_was(any_store: Any, make: Callable[[], Any]) -> None:
    client, ledger = answering(make, any_store)
    token = token_of(client)

    first, again = send(client, token), send(client, token)

    assert_repeated(again, first)
    assert again.status == first.status or again.status_code == 299  # a phrase of its own is not kept
    assert again.headers.get("Content-Length") == first.headers.get("Content-Length")
    left = {name: first.headers.getlist(name) for name, _ in first.headers if name != "Set-Cookie"}
    assert {name: again.headers.getlist(name) for name in left} == left
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-04")
@pytest.mark.parametrize("decode_responses", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
def test_binary_answers_survive_every_server_and_client(
    redis_server: RedisServer, protocol: int, decode_responses: bool
) -> None:
    store = redis_server.client(protocol=protocol, decode_responses=decode_responses)
    client, ledger = answering(made(EVERY_BYTE * 40, mimetype="image/png"), store)
    token = token_of(client)

    first, again = send(client, token), send(client, token)

    assert first.data == EVERY_BYTE * 40
    assert_repeated(again, first)
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-03")
@pytest.mark.parametrize("shape", ["(x, 404)", "Response 404", "abort(404)", "raised"])
def test_an_error_that_is_final_by_the_views_own_word_comes_back_as_that_error(any_store: Any, shape: str) -> None:
    def failing() -> Any:
        if shape == "(x, 404)":
            return "none", 404
        if shape == "Response 404":
            return Response("none", 404)
        if shape == "abort(404)":
            abort(404, "none")
        raise HTTPException(response=Response("none", 404))

    client, ledger = answering(failing, any_store, options={"final": lambda response: response.status_code < 500})
    token = token_of(client)

    first, again = send(client, token), send(client, token)

    assert first.status_code == 404
    assert_repeated(again, first)
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-03")
@pytest.mark.parametrize("kind", ["subclass", "app's response class"])
def test_apps_with_a_response_class_of_their_own_get_it_again(kind: str) -> None:
    class Own(Response):
        default_mimetype = "application/x-own"

    app, ledger = make_app(), Ledger()
    if kind == "app's response class":
        app.response_class = Own
    seen: list[type] = []

    @app.after_request
    def look(response: Response) -> Response:
        seen.append(type(response))
        return response

    @app.post("/work")
    @idempotent
    def work() -> Any:
        ledger.add()
        return "made" if kind == "app's response class" else Own("made")

    client = app.test_client()
    token = token_of(client)

    first, again = send(client, token), send(client, token)

    assert_repeated(again, first)
    assert first.mimetype == again.mimetype == "application/x-own"
    if kind == "app's response class":
        assert seen[-1] is Own


# -- what cannot be kept -------------------------------------------------------------------------------------------


@pytest.mark.case("REPLAY-03", "REPLAY-05", "S6")
@pytest.mark.parametrize(("make", "body"), STREAMED.values(), ids=STREAMED)
def test_a_streamed_answer_is_done_without_an_answer(
    any_store: Any, policy: str, make: Callable[[], Any], body: bytes
) -> None:
    client, ledger = answering(make, any_store, ON_DUPLICATE=policy)
    token = token_of(client)

    first = send(client, token)

    assert (first.status_code, first.data) == (200, body)
    assert_refused(send(client, token), "response_unavailable" if policy == "replay" else "duplicate")
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-05")
@pytest.mark.parametrize("kind", ["path", "BytesIO"])
@pytest.mark.parametrize(
    "headers", [{}, {"Range": "bytes=2-5"}, {"If-None-Match": "*"}], ids=["plain", "Range", "etag"]
)
def test_a_sent_file_reaches_its_caller_and_never_comes_back_as_a_slice(
    any_store: Any, policy: str, tmp_path: Path, kind: str, headers: dict[str, str]
) -> None:
    client, ledger = answering(a_file(kind, tmp_path), any_store, ON_DUPLICATE=policy)
    token = token_of(client)

    first = send(client, token)
    again = send(client, token, headers=headers)

    assert (first.status_code, first.data) == (200, EVERY_BYTE)
    first.close()
    again.close()  # a file, if the guard has failed; left open, it would be the next test's error
    assert_refused(again, "response_unavailable" if policy == "replay" else "duplicate")
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-06")
def test_an_answer_too_large_to_keep_reaches_its_caller_and_is_done(valkey: RedisServer, policy: str) -> None:
    size = 20 * 1024 * 1024
    client, ledger = answering(lambda: b"x" * size, valkey.url, ON_DUPLICATE=policy, MAX_RESULT=1024 * 1024)
    token = token_of(client)

    first = send(client, token)

    assert (first.status_code, len(first.data)) == (200, size)
    assert_refused(send(client, token), "response_unavailable" if policy == "replay" else "duplicate")
    assert len(ledger) == 1
    assert sum(valkey.control.strlen(key) for key in valkey.control.scan_iter()) < 1000


@pytest.mark.case("REPLAY-06")
@pytest.mark.parametrize(("size", "kept"), [(0, True), (999, True), (1000, True), (1001, False)])
@pytest.mark.parametrize("limit", [1000])
def test_the_largest_answer_that_is_kept_has_exactly_the_size_of_the_limit(
    any_store: Any, limit: int, size: int, kept: bool
) -> None:
    client, ledger = answering(lambda: b"x" * size, any_store, MAX_RESULT=limit)
    token = token_of(client)

    first, again = send(client, token), send(client, token)

    assert len(first.data) == size
    if kept:
        assert_repeated(again, first)
    else:
        assert_refused(again, "response_unavailable")
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-05")
def test_an_answer_that_cannot_be_captured_is_not_traded_for_the_record(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(Response):
        def iter_encoded(self) -> Any:
            if getattr(g, "captured", False):
                return super().iter_encoded()
            g.captured = True
            raise RuntimeError("not now")

    client, ledger = answering(lambda: Stubborn("made"))
    token = token_of(client)

    first = send(client, token)

    assert (first.status_code, first.text) == (200, "made")
    assert_refused(send(client, token), "response_unavailable")
    assert len(ledger) == 1
    assert [r.levelname for r in caplog.records if r.name.startswith("flask_idempotent")].count("ERROR") == 1


@pytest.mark.case("REPLAY-05")
@pytest.mark.parametrize("above", ["error handler", "decorator"])
def test_a_view_that_succeeded_below_a_failing_layer_is_done_without_an_answer(policy: str, above: str) -> None:
    app, ledger = make_app(ON_DUPLICATE=policy), Ledger()

    def breaking(view: Any) -> Any:
        def outer() -> Any:
            value = view()
            if ledger and above == "decorator":
                return "could not serialise", 500
            raise ValueError("could not serialise", value)

        outer.__wrapped__ = view  # type: ignore[attr-defined]
        return outer

    @app.errorhandler(ValueError)
    def handle(error: ValueError) -> tuple[str, int]:
        return "handled", 500

    @app.post("/work", endpoint="work")
    @breaking
    @idempotent
    def work() -> str:
        ledger.add()
        return "made"

    client = app.test_client()
    token = token_of(client)

    assert send(client, token).status_code == 500
    assert_refused(send(client, token), "response_unavailable" if policy == "replay" else "duplicate")
    assert len(ledger) == 1


# -- damaged records -----------------------------------------------------------------------------------------------


@pytest.mark.case("REPLAY-09")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("stage", ["issued", "done"])
def test_a_damaged_record_is_refused_and_never_run(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture, stage: str, damage: Callable[[bytes], bytes]
) -> None:
    client, ledger = answering(lambda: {"id": 7}, redis_server.url)
    token = token_of(client)
    if stage == "done":
        send(client, token)
    before = len(ledger)
    damage_the_record(redis_server, damage)

    for _ in range(2):
        assert_refused_as_damaged(send(client, token), caplog)

    assert len(ledger) == before


@pytest.mark.case("REPLAY-09")
@pytest.mark.parametrize(
    "policy", ["reject", "ignore", lambda error: "as the app likes"], ids=["reject", "ignore", "own"]
)
def test_a_damaged_record_is_refused_under_every_policy(
    valkey: RedisServer, caplog: pytest.LogCaptureFixture, policy: Any
) -> None:
    client, ledger = answering(lambda: {"id": 7}, valkey.url, ON_DUPLICATE=policy)
    token = token_of(client)
    send(client, token)
    damage_the_record(valkey, DAMAGE["half of itself"])

    assert_refused_as_damaged(send(client, token), caplog)

    assert len(ledger) == 1


@pytest.mark.case("REPLAY-09")
@pytest.mark.parametrize("kind", ["list", "hash", "set"])
def test_a_value_of_another_type_is_refused_and_never_run(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    client, ledger = answering(lambda: {"id": 7}, redis_server.url)
    token = token_of(client)
    send(client, token)
    control = redis_server.control
    (key,) = control.keys()
    control.delete(key)
    {"list": lambda: control.lpush(key, "x"), "hash": lambda: control.hset(key, "a", "b")}.get(
        kind, lambda: control.sadd(key, "x")
    )()

    assert_refused_as_damaged(send(client, token), caplog)

    assert len(ledger) == 1


@pytest.mark.case("REPLAY-09")
@pytest.mark.parametrize("position", [-1, -40, "body"])
def test_a_record_whose_kept_answer_was_altered_is_not_replayed(
    valkey: RedisServer, caplog: pytest.LogCaptureFixture, position: int | str
) -> None:
    client, ledger = answering(lambda: {"message": "the first answer of all"}, valkey.url)
    token = token_of(client)
    send(client, token)
    (key,) = valkey.control.keys()
    value = bytearray(valkey.control.get(key))
    at = value.index(b"first answer") if isinstance(position, str) else position
    value[at] ^= 1
    valkey.control.set(key, bytes(value), keepttl=True)

    assert_refused_as_damaged(send(client, token), caplog)

    assert len(ledger) == 1


# -- flashed messages ----------------------------------------------------------------------------------------------


def flashing_app(store: Any = None, **config: Any) -> tuple[Flask, Ledger]:
    app, ledger = make_app(store, **config), Ledger()

    @app.post("/work")
    @idempotent
    def work() -> Any:
        ledger.add()
        flash("Order taken", "success")
        flash(Markup("<b>Thanks</b>"))
        return redirect("/done")

    @app.get("/done")
    def done() -> Any:
        return jsonify(get_flashed_messages(with_categories=True))

    return app, ledger


MESSAGES = [["success", "Order taken"], ["message", "<b>Thanks</b>"]]


@pytest.mark.case("S6")
def test_messages_are_flashed_again_for_a_browser_that_dropped_the_first_answer(any_store: Any) -> None:
    app, ledger = flashing_app(any_store)
    browser, page_behind_the_dropped_answer = app.test_client(), app.test_client()
    token = token_of(browser)

    first = send(page_behind_the_dropped_answer, token)  # its cookies never reach the browser
    again = send(browser, token)

    assert_repeated(again, first)
    assert browser.get("/done").get_json() == MESSAGES
    assert browser.get("/done").get_json() == []
    assert len(ledger) == 1


@pytest.mark.case("S6")
def test_a_session_that_holds_the_messages_does_not_get_them_twice() -> None:
    app, _ = flashing_app()
    browser = app.test_client()
    token = token_of(browser)

    send(browser, token)
    again = send(browser, token)

    assert again.headers[REPLAYED] == "true"
    assert browser.get("/done").get_json() == MESSAGES


@pytest.mark.case("S6")
def test_messages_are_not_flashed_where_no_answer_is_shown() -> None:
    app, _ = flashing_app(ON_DUPLICATE="reject")
    browser = app.test_client()
    token = token_of(browser)

    send(app.test_client(), token)

    assert_refused(send(browser, token), "duplicate")
    assert browser.get("/done").get_json() == []


@pytest.mark.case("S6")
def test_a_message_that_no_session_can_hold_does_not_fail_the_answer() -> None:
    store = MemoryStore()
    app, ledger = make_app(store), Ledger()

    class Lazy:
        def __str__(self) -> str:
            return "lazy"

    @app.post("/work")
    @idempotent
    def work() -> Any:
        ledger.add()
        flash(Lazy())  # type: ignore[arg-type]
        get_flashed_messages()  # taken out of the session again by the view
        session.clear()
        return "made"

    client = app.test_client()
    token = token_of(client)

    first = send(client, token)

    assert first.text == "made"
    assert_repeated(send(client, token), first)
    assert len(ledger) == 1


@pytest.mark.case("S6")
def test_a_replay_with_nothing_to_flash_leaves_the_session_alone() -> None:
    client, _ = answering(lambda: "made")
    token = token_of(client)

    first, again = send(client, token), send(client, token)

    assert_repeated(again, first)
    assert "Set-Cookie" not in again.headers
    assert "Cookie" not in again.headers.get("Vary", "")
