"""The token endpoint: a fresh token as JSON, for scripts."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest
from flask import Flask, Response

from flask_idempotent import StoreUnavailable, TokenForeign, idempotent
from flask_idempotent.stores.memory import MemoryStore
from tests.helpers import FIELD, HEADER, Ledger, assert_refused, assert_repeated, make_app, reason_of

URL = "/idempotency/token"
MEMBERS = {"token", "scene", "field", "header", "expires_in"}


def with_orders(app: Flask, ledger: Ledger, path: str = "/orders", **options: Any) -> Flask:
    @app.post(path, endpoint=path.strip("/"))
    @idempotent(**options)
    def order() -> tuple[dict[str, int], int]:
        return {"order": ledger.add()}, 201

    return app


@pytest.mark.case("S2", "S1")
def test_it_answers_with_a_fresh_token_and_all_a_script_needs(any_store, policy):
    ledger = Ledger()
    client = with_orders(make_app(any_store, ON_DUPLICATE=policy), ledger).test_client()
    answers = [client.get(URL) for _ in range(2)]
    for number, answer in enumerate(answers, start=1):
        assert (answer.status_code, answer.mimetype) == (200, "application/json")
        assert "no-store" in answer.headers["Cache-Control"]
        body = answer.json
        assert set(body) == MEMBERS
        assert uuid.UUID(body["token"]).version == 4
        assert (body["scene"], body["field"], body["header"]) == (None, FIELD, HEADER)
        assert body["expires_in"] == 3600
        first = client.post("/orders", headers={body["header"]: body["token"]}, json={"n": 1})
        assert first.status_code == 201
        repeat = client.post("/orders", headers={body["header"]: body["token"]}, json={"n": 1})
        assert_repeated(repeat, first, policy)
        assert len(ledger) == number
    assert answers[0].json["token"] != answers[1].json["token"]


@pytest.mark.case("S2", "S22")
def test_the_articles_envelope(any_store):
    ledger = Ledger()
    app = make_app(any_store, ERROR_FORMAT="envelope", ON_DUPLICATE="reject")
    client = with_orders(app, ledger, scene="createOrder").test_client()
    body = client.get(URL, query_string={"scene": "createOrder"}).json
    assert {name: body[name] for name in ("code", "message")} == {"code": 200, "message": "success"}
    assert set(body) == {"code", "message", "data"}
    assert set(body["data"]) == MEMBERS
    assert body["data"]["scene"] == "createOrder"
    headers = {HEADER: body["data"]["token"]}
    assert client.post("/orders", headers=headers).status_code == 201
    refused = client.post("/orders", headers=headers)
    assert refused.status_code == 409
    assert {name: refused.json[name] for name in ("code", "data", "reason")} == {
        "code": 429,
        "data": None,
        "reason": "duplicate",
    }
    assert len(ledger) == 1


@pytest.mark.case("S2", "S9", "P5")
def test_a_scene_is_stored_returned_and_checked(any_store, policy):
    ledger = Ledger()
    app = with_orders(make_app(any_store, ON_DUPLICATE=policy), ledger, scene="createOrder")
    with_orders(app, ledger, "/refunds", scene="refund")
    client = app.test_client()
    body = client.get(URL, query_string={"scene": "createOrder"}).json
    assert body["scene"] == "createOrder"
    header = {HEADER: body["token"]}
    assert_refused(client.post("/refunds", headers=header), "token_foreign", 403)
    assert len(ledger) == 0
    first = client.post("/orders", headers=header)
    assert first.status_code == 201
    assert_repeated(client.post("/orders", headers=header), first, policy)
    assert len(ledger) == 1


@pytest.mark.case("S2")
@pytest.mark.parametrize(
    "query",
    [
        {"scene": "a" * 65},
        {"scene": "a b"},
        {"scene": "ä"},
        {"scene": "<script>alert(1)</script>"},
        {"scene": "a/b"},
        {"scene": "a\n"},
        {"scene": "a\x00"},
        {"scene": ["a", "b"]},
        {"scene": ["a", "a"]},
    ],
)
@pytest.mark.parametrize("error_format", ["problem", "envelope"])
def test_a_malformed_scene_is_refused_and_recorded_nowhere(valkey, query, error_format):
    client = make_app(valkey.url, ERROR_FORMAT=error_format).test_client()
    refused = client.get(URL, query_string=query)
    assert_refused(refused, "scene_invalid", 400)
    assert "token" not in refused.json
    assert "<script>" not in client.get(URL, query_string=query, headers={"Accept": "text/html"}).text
    assert valkey.client().dbsize() == 0
    assert client.get(URL, query_string={"scene": "a" * 64}).status_code == 200
    assert valkey.client().dbsize() == 1


@pytest.mark.case("S2")
@pytest.mark.parametrize("query", ["", "scene=", "scene", "other=1"])
def test_no_scene_and_an_empty_one_fit_any_view(any_store, query):
    ledger = Ledger()
    client = with_orders(make_app(any_store), ledger, scene="createOrder").test_client()
    body = client.get(URL, query_string=query).json
    assert body["scene"] is None
    first = client.post("/orders", headers={HEADER: body["token"]})
    assert first.status_code == 201
    assert_repeated(client.post("/orders", headers={HEADER: body["token"]}), first)
    assert len(ledger) == 1


@pytest.mark.case("S2")
def test_a_scene_that_nobody_has_gets_the_apps_defaults(any_store):
    ledger = Ledger()
    app = with_orders(make_app(any_store), ledger)
    client = app.test_client()
    body = client.get(URL, query_string={"scene": "nobodys"}).json
    assert (body["scene"], body["expires_in"]) == ("nobodys", 3600)
    assert_refused(client.post("/orders", headers={HEADER: body["token"]}), "token_foreign", 403)
    assert len(ledger) == 0


@pytest.mark.case("S2")
@pytest.mark.parametrize(
    ("config", "member", "value"),
    [
        ({"TOKEN_TTL": 300}, "expires_in", 300),
        ({"TOKEN_TTL": 0.5}, "expires_in", 0.5),
        ({"TOKEN_FIELD": "once"}, "field", "once"),
        ({"TOKEN_HEADER": "X-Once"}, "header", "X-Once"),
    ],
)
def test_it_says_what_the_app_has_set_and_that_holds(any_store, config, member, value):
    ledger = Ledger()
    client = with_orders(make_app(any_store, **config), ledger).test_client()
    body = client.get(URL).json
    assert body[member] == value
    for sent in (
        {"headers": {body["header"]: body["token"]}},
        {"data": {body["field"]: client.get(URL).json["token"]}},
    ):
        first = client.post("/orders", **sent)
        assert first.status_code == 201
        assert_repeated(client.post("/orders", **sent), first)
    assert len(ledger) == 2


@pytest.mark.case("S2", "S1")
def test_the_life_it_names_is_the_one_the_server_keeps(valkey):
    client = make_app(valkey.url, TOKEN_TTL=300).test_client()
    assert client.get(URL).json["expires_in"] == 300
    (key,) = valkey.client().keys("idempotency:*")
    assert 280_000 < valkey.client().pttl(key) <= 300_000


@pytest.mark.case("S2", "S9")
def test_a_scene_brings_its_store_and_its_binding(valkey):
    audit, ledger = MemoryStore(), Ledger()
    app = make_app(valkey.url, STORES={"audit": audit})
    with_orders(app, ledger, "/audited", scene="audited", store="audit")
    with_orders(app, ledger, "/open", scene="open", binding="none")
    with_orders(app, ledger, "/mine", scene="mine", binding="session")
    with_orders(app, ledger, "/orders")
    client, other = app.test_client(), app.test_client()
    tokens = {
        scene: client.get(URL, query_string={"scene": scene}).json["token"] for scene in ("audited", "open", "mine")
    }
    assert (len(list(audit.scan())), valkey.client().dbsize()) == (1, 2)
    elsewhere: dict[str, Any] = {"environ_overrides": {"REMOTE_ADDR": "203.0.113.1"}}
    assert_refused(other.post("/audited", headers={HEADER: tokens["audited"]}, **elsewhere), "token_foreign", 403)
    assert_refused(other.post("/mine", headers={HEADER: tokens["mine"]}), "token_foreign", 403)
    assert len(ledger) == 0
    for path, who, options in (("/audited", client, {}), ("/open", other, elsewhere), ("/mine", client, elsewhere)):
        header = {HEADER: tokens[path.strip("/")]}
        first = who.post(path, headers=header, **options)
        assert first.status_code == 201
        assert_repeated(who.post(path, headers=header, **options), first)
    assert len(ledger) == 3


@pytest.mark.case("S2", "S22")
@pytest.mark.parametrize("error_format", ["problem", "envelope"])
def test_without_a_store_it_says_so(caplog, error_format):
    class Gone(MemoryStore):
        def issue(self, *args: Any, **kwargs: Any) -> None:
            raise StoreUnavailable("gone")

    refused = make_app(Gone(), ERROR_FORMAT=error_format).test_client().get(URL)
    assert_refused(refused, "store_unavailable", 503)
    assert refused.headers["Retry-After"] == "1"
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


@pytest.mark.case("S2")
def test_the_app_may_move_it_or_leave_it_out(any_store):
    moved = make_app(any_store, TOKEN_URL="/api/once").test_client()
    assert moved.get("/api/once").json["token"]
    assert "no-store" in moved.get("/api/once").headers["Cache-Control"]
    assert moved.get(URL).status_code == 404
    ledger = Ledger()
    app = with_orders(make_app(any_store, TOKEN_URL=None), ledger)
    client = app.test_client()
    assert client.get(URL).status_code == 404
    assert "idempotency_token" not in app.view_functions
    assert_refused(client.post("/orders", headers={HEADER: "0" * 32}), "token_unknown")


@pytest.mark.case("S2", "FORM-13")
def test_other_verbs(valkey):
    client = make_app(valkey.url).test_client()
    assert client.post(URL).status_code == 405
    assert client.options(URL).status_code == 200
    head = client.head(URL)
    assert (head.status_code, "no-store" in head.headers["Cache-Control"]) == (200, True)
    assert valkey.client().dbsize() == 0
    assert client.get(URL).status_code == 200
    assert valkey.client().dbsize() == 1


@pytest.mark.case("S2", "FORM-15")
@pytest.mark.parametrize("own", ["public, max-age=300", "max-age=300", "s-maxage=5"])
def test_an_apps_cache_rule_for_all_pages_does_not_share_tokens(any_store, own):
    app = with_orders(make_app(any_store), Ledger())

    @app.after_request
    def cached(response: Response) -> Response:
        response.headers["Cache-Control"] = own
        return response

    client = app.test_client()
    answer = client.get(URL)
    control = answer.headers["Cache-Control"]
    assert "no-store" in control or "private" in control
    assert "public" not in control
    assert "s-maxage" not in control
    assert client.get("/nowhere").headers["Cache-Control"] == own
    first, second = (client.post("/orders", headers={HEADER: answer.json["token"]}) for _ in range(2))
    assert_repeated(second, first)


@pytest.mark.case("S2", "S22")
def test_its_refusals_go_the_apps_way(any_store):
    app = with_orders(make_app(any_store), Ledger())

    @app.errorhandler(400)
    def bad(error: Any) -> tuple[str, int]:
        return f"the app's own page: {error.reason}", 400

    client = app.test_client()
    assert client.get(URL, query_string={"scene": "a b"}).text == "the app's own page: scene_invalid"
    assert client.post("/orders").text == "the app's own page: token_missing"


def test_a_user_binding_binds_here_as_in_a_page(any_store):
    user = ["alice"]
    ledger = Ledger()
    app = with_orders(make_app(any_store, PRINCIPAL=lambda: user[0], BINDING="user"), ledger)
    seen: list[str] = []
    app.register_error_handler(TokenForeign, lambda error: (seen.append(error.reason), ("", 403))[1])
    client = app.test_client()
    token = client.get(URL).json["token"]
    user[0] = "bob"
    assert client.post("/orders", headers={HEADER: token}).status_code == 403
    user[0] = "alice"
    assert client.post("/orders", headers={HEADER: token}).status_code == 201
    assert (seen, len(ledger)) == (["token_foreign"], 1)


@pytest.mark.case("WIRE-08", "S2")
def test_switched_off_it_answers_and_asks_no_store(valkey):
    app = make_app(valkey.url)
    client = app.test_client()
    assert client.get(URL).status_code == 200
    assert valkey.client().dbsize() == 1
    valkey.flush()
    app.config["IDEMPOTENCY_ENABLED"] = False
    answer = client.get(URL, query_string={"scene": "createOrder"})
    assert answer.status_code == 200
    assert set(answer.json) == MEMBERS
    assert answer.json["scene"] == "createOrder"
    assert reason_of(answer) is None
    assert valkey.client().dbsize() == 0
