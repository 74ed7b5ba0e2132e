"""The token itself: the design card from end to end, what lies in the store, spellings, places, isolation."""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from flask import Flask, render_template_string, request

from flask_idempotent import Idempotency, idempotent
from flask_idempotent.core.keys import store_key, token_digest
from flask_idempotent.core.record import State
from flask_idempotent.stores import from_url
from tests.helpers import (
    FIELD,
    HEADER,
    REPLAYED,
    Ledger,
    assert_refused,
    assert_repeated,
    make_app,
    token_of,
    tokens_of,
)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def shop(ledger: Ledger, store: Any, **config: Any) -> Any:
    """A client of an app with two guarded views, one that submits and one that deletes."""
    app = make_app(store, **config)

    @app.post("/orders")
    @idempotent
    def order() -> tuple[str, int]:
        return f"order {ledger.add('order')}", 201

    @app.delete("/orders/<int:number>")
    @idempotent
    def remove(number: int) -> tuple[str, int]:
        ledger.add(f"removed {number}")
        return "", 204

    return app.test_client()


def record_of(url: str, token: str, prefix: str = "idempotency") -> Any:
    return from_url(url).get(store_key(prefix, token_digest(token.replace("-", ""))))


# --- the design card ---------------------------------------------------------------------------------------------


@pytest.mark.case("S1", "S3", "S4", "S5", "S6")
def test_the_design_card_from_end_to_end(valkey, ledger):
    """UUID tokens bound to the client's address in Redis, hidden fields in templates with ``<<`` and ``>>``, one atomic
    script in a before_request hook, the token restored when the view raises."""
    app = Flask("tests.helpers")
    app.config.update(IDEMPOTENCY_STORE=valkey.url, IDEMPOTENCY_PREFIX="shop", IDEMPOTENCY_TOKEN_TTL=300)
    app.jinja_options = {"variable_start_string": "<<", "variable_end_string": ">>"}
    Idempotency().init_app(app)
    states: list[State] = []

    @app.before_request  # after ours
    def look() -> None:
        if token := request.form.get(FIELD):
            states.append(record_of(valkey.url, token, "shop").state)

    @app.get("/form")
    def form() -> str:
        return render_template_string("<form method=post><< idempotency_token() >></form>")

    @app.post("/orders")
    @idempotent
    def order() -> tuple[str, int]:
        if ledger.add() == 1:
            raise ValueError("the payment failed")
        return "ordered", 201

    client = app.test_client()
    page = client.get("/form").text
    (token,) = tokens_of(page)
    assert uuid.UUID(token).version == 4
    assert re.fullmatch(r'<form method=post><input type="hidden" [^>]*></form>', page)
    (key,) = valkey.client().keys("*")
    assert key.startswith(b"shop:")
    assert 280_000 < valkey.client().pttl(key) <= 300_000

    def send(**options: Any) -> Any:
        return client.post("/orders", data={FIELD: token}, **options)

    assert_refused(send(environ_overrides={"REMOTE_ADDR": "203.0.113.5"}), "token_foreign", 403)
    assert states.pop() is State.ISSUED  # a stranger's attempt changed nothing
    failed = send()
    assert (failed.status_code, states.pop()) == (500, State.RUNNING)  # claimed in the hook
    assert record_of(valkey.url, token, "shop").state is State.ISSUED  # and given back
    first = send()
    assert (first.status_code, states.pop()) == (201, State.RUNNING)
    second = send()
    assert_repeated(second, first)
    assert states.pop() is State.DONE
    assert valkey.client().keys("*") == [key]
    assert len(ledger) == 2


@pytest.mark.case("S4")
def test_one_submission_is_two_round_trips_and_a_refusal_one(valkey, ledger):
    client = shop(ledger, valkey.url)
    tokens = [token_of(client) for _ in range(2)]
    assert client.post("/orders", data={FIELD: tokens[0]}).status_code == 201  # loads the scripts
    before = valkey.calls("evalsha") + valkey.calls("eval")
    for sent, calls in (
        ({FIELD: tokens[1]}, 2),
        ({FIELD: tokens[1]}, 1),
        ({FIELD: tokens[1], "amount": "2"}, 1),
        ({FIELD: "0" * 32}, 1),
        ({FIELD: "malformed"}, 0),
        ({}, 0),
    ):
        client.post("/orders", data=sent)
        before, now = valkey.calls("evalsha") + valkey.calls("eval"), before
        assert before - now == calls, sent
    assert len(ledger) == 2


@pytest.mark.case("S4", "FORM-01")
def test_twenty_threads_and_one_token_run_once(any_store, policy, ledger):
    app = shop(ledger, any_store, ON_DUPLICATE=policy).application
    for number in range(1, 6):
        data = {FIELD: token_of(app.test_client())}
        barrier = Barrier(20)

        def click(_: int, barrier: Barrier = barrier, data: Any = data) -> Any:
            barrier.wait()
            return app.test_client().post("/orders", data=data)

        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(click, range(20)))
        assert len(ledger) == number
        assert sum(a.status_code == 201 and REPLAYED not in a.headers for a in answers) == 1
        assert {a.status_code for a in answers} <= {201, 409}


# --- what lies in the store --------------------------------------------------------------------------------------


@pytest.mark.case("S1")
def test_neither_token_nor_address_lies_in_the_store_and_nothing_is_without_an_end(valkey, ledger, caplog):
    caplog.set_level(0, "flask_idempotent")
    client = shop(ledger, valkey.url)
    address = {"environ_overrides": {"REMOTE_ADDR": "198.51.100.23"}}
    token = token_of(client, **address)
    for state in range(3):
        (key,) = valkey.client().keys("*")
        stored = key + valkey.client().get(key)
        for spelling in (token, token.replace("-", ""), "198.51.100.23"):
            assert spelling.encode() not in stored
            assert spelling not in caplog.text
        assert valkey.client().pttl(key) > 0
        if state < 2:
            assert client.post("/orders", data={FIELD: token}, **address).status_code == 201
    assert len(ledger) == 1


# --- spellings and places ----------------------------------------------------------------------------------------

SPELLINGS = {
    "as issued": lambda token: token,
    "without hyphens": lambda token: token.replace("-", ""),
    "in capitals": str.upper,
    "in capitals without hyphens": lambda token: token.replace("-", "").upper(),
    "mixed case": str.title,
    "hyphens everywhere": lambda token: "-".join(token.replace("-", "")),
    "hyphens elsewhere": lambda token: "-".join(re.findall("........", token.replace("-", ""))),
}


@pytest.mark.case("S1", "S3")
@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize("place", ["header", "form"])
def test_every_spelling_is_the_same_token(any_store, policy, ledger, spelled, place):
    client = shop(ledger, any_store, ON_DUPLICATE=policy)
    token = token_of(client)

    def send(value: str) -> Any:
        return client.post(
            "/orders", **({"headers": {HEADER: value}} if place == "header" else {"data": {FIELD: value}})
        )

    first = send(SPELLINGS[spelled](token))
    assert first.status_code == 201
    for again in SPELLINGS.values():
        assert_repeated(send(again(token)), first, policy)
    assert len(ledger) == 1


MALFORMED = [
    "x",
    "0" * 31,
    "0" * 33,
    "{TOKEN}",
    "urn:uuid:TOKEN",
    '"TOKEN"',
    "TOKEN TOKEN",
    "TOKEN,TOKEN",
    "g" * 32,
    "０" * 32,
    "é" * 16,
    "0" * 32 + "-" * 33,
    "' OR 1=1 --",
    "<script>alert(1)</script>",
    "../" * 12,
    "%00" * 12,
    "a" * 100_000,
]


@pytest.mark.case("S3", "S6", "BODY-08")
@pytest.mark.parametrize("value", MALFORMED, ids=lambda value: ascii(value[:24]))
def test_a_malformed_token_is_refused_without_an_echo_and_uses_nothing_up(valkey, ledger, value):
    client = shop(ledger, valkey.url)
    token = token_of(client)
    value = value.replace("TOKEN", token)
    before = valkey.calls("evalsha")
    for accept in ("*/*", "text/html"):
        answer = client.post("/orders", data={FIELD: value}, headers={"Accept": accept})
        assert answer.status_code == 400
        assert "token_invalid" in answer.text
        assert "alert(" not in answer.text
        assert len(answer.data) < 20_000
    assert valkey.calls("evalsha") == before
    first = client.post("/orders", data={FIELD: token})
    assert_repeated(client.post("/orders", data={FIELD: token}), first)
    assert len(ledger) == 1


@pytest.mark.case("S3", "S6")
@pytest.mark.parametrize("blank", ["", None])
@pytest.mark.parametrize("place", ["header", "form"])
def test_a_missing_token_is_an_error_of_its_own_and_an_empty_one_counts_as_missing(any_store, ledger, blank, place):
    client = shop(ledger, any_store)
    value = {} if blank is None else {HEADER if place == "header" else FIELD: blank}
    refused = client.post("/orders", **{"headers" if place == "header" else "data": value})
    assert_refused(refused, "token_missing", 400)
    assert len(ledger) == 0


@pytest.mark.case("S3")
def test_the_header_goes_before_the_field(any_store, policy, ledger):
    client = shop(ledger, any_store, ON_DUPLICATE=policy)
    token, other = token_of(client), token_of(client)
    first = client.post("/orders", headers={HEADER: token}, data={FIELD: other})
    assert first.status_code == 201
    assert_repeated(client.post("/orders", headers={HEADER: token}, data={FIELD: "not a token"}), first, policy)
    assert_refused(client.post("/orders", headers={HEADER: "x"}, data={FIELD: other}), "token_invalid", 400)
    # The other one is still good, also beside an empty header.
    assert client.post("/orders", headers={HEADER: ""}, data={FIELD: other}).status_code == 201
    assert len(ledger) == 2


@pytest.mark.case("S3")
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("place", ["header", "form", "query"])
def test_a_token_that_is_given_twice_in_one_place_is_malformed(any_store, ledger, place, same):
    client = shop(ledger, any_store, TOKEN_LOCATIONS=("header", "form", "query"))
    token = token_of(client)
    both = [token, token if same else token_of(client)]
    sent: dict[str, Any] = {
        "header": {"headers": [(HEADER, value) for value in both]},
        "form": {"data": {FIELD: both}},
        "query": {"query_string": {FIELD: both}},
    }[place]
    assert_refused(client.post("/orders", **sent), "token_invalid", 400)
    first = client.post("/orders", headers={HEADER: token})
    assert_repeated(client.post("/orders", headers={HEADER: token}), first)
    assert len(ledger) == 1


@pytest.mark.case("S3", "FORM-14")
def test_submit_and_delete_views_alike(any_store, policy, ledger):
    client = shop(ledger, any_store, ON_DUPLICATE=policy)
    for sent in ({"headers": {HEADER: token_of(client)}}, {"data": {FIELD: token_of(client)}}):
        first = client.delete("/orders/7", **sent)
        assert first.status_code == 204
        assert_repeated(client.delete("/orders/7", **sent), first, policy)
        assert_refused(client.delete("/orders/8", **sent), "token_reused", 422)
    assert ledger.entries == ["removed 7"] * 2


# --- isolation ---------------------------------------------------------------------------------------------------


@pytest.mark.case("S9", "P5")
def test_two_operations_never_block_each_other(any_store, policy, ledger):
    """Each operation has its tokens; the same number used in two of them is one right, for the first one only."""
    client = shop(ledger, any_store, ON_DUPLICATE=policy)
    order, remove = token_of(client), token_of(client)
    first = client.post("/orders", headers={HEADER: order})
    gone = client.delete("/orders/1", headers={HEADER: remove})
    assert (first.status_code, gone.status_code) == (201, 204)
    assert_refused(client.delete("/orders/1", headers={HEADER: order}), "token_reused", 422)
    assert_refused(client.post("/orders", headers={HEADER: remove}), "token_reused", 422)
    assert_repeated(client.post("/orders", headers={HEADER: order}), first, policy)
    assert_repeated(client.delete("/orders/1", headers={HEADER: remove}), gone, policy)
    assert ledger.entries == ["order", "removed 1"]


@pytest.mark.case("S9", "P5")
def test_the_same_number_in_two_stores_is_two_tokens(valkey, ledger):
    """As two apps that share a server under prefixes of their own: one's token is none of the other's."""
    one, other = (shop(ledger, valkey.url, PREFIX=prefix) for prefix in ("one", "other"))
    token = token_of(one)
    from_url(valkey.url).issue(
        store_key("other", token_digest(token.replace("-", ""))),
        binding=record_of(valkey.url, token, "one").binding,
        scene="",
        ttl=60,
    )
    answers = [client.post("/orders", headers={HEADER: token}) for client in (one, other, one, other)]
    assert [a.text for a in answers] == ["order 1", "order 2", "order 1", "order 2"]
    assert [REPLAYED in a.headers for a in answers] == [False, False, True, True]
    assert len(ledger) == 2


# --- the articles' shape of a refusal ----------------------------------------------------------------------------


@pytest.mark.case("S22", "S6")
def test_all_refusals_have_the_articles_one_shape(any_store, ledger):
    client = shop(ledger, any_store, ERROR_FORMAT="envelope", ON_DUPLICATE="reject", MESSAGE="请勿重复提交")
    token = token_of(client)
    other = token_of(client, environ_overrides={"REMOTE_ADDR": "203.0.113.9"})
    assert client.post("/orders", data={FIELD: token}).status_code == 201
    for reason, status, data in (
        ("token_missing", 400, {}),
        ("token_invalid", 400, {FIELD: "x"}),
        ("token_unknown", 409, {FIELD: "0" * 32}),
        ("token_foreign", 403, {FIELD: other}),
        ("token_reused", 422, {FIELD: token, "amount": "2"}),
        ("duplicate", 409, {FIELD: token}),
    ):
        refused = client.post("/orders", data=data)
        assert (refused.status_code, refused.mimetype) == (status, "application/json")
        assert list(refused.json) == ["code", "message", "data", "reason"]
        assert (refused.json["code"], refused.json["data"], refused.json["reason"]) == (429, None, reason)
        assert (refused.json["message"] == "请勿重复提交") is (reason == "duplicate")
    assert len(ledger) == 1


@pytest.mark.case("S22", "S6")
def test_problem_details_are_the_default(any_store, ledger):
    client = shop(ledger, any_store, ON_DUPLICATE="reject")
    data = {FIELD: token_of(client)}
    client.post("/orders", data=data)
    problem = client.post("/orders", data=data)
    assert problem.mimetype == "application/problem+json"
    assert problem.json["type"] == "urn:flask-idempotency:duplicate"
    assert (problem.json["status"], problem.json["code"]) == (409, "duplicate")
    assert problem.json["title"]
    assert problem.json["detail"]
    assert len(ledger) == 1


@pytest.mark.case("S6")
@pytest.mark.parametrize("error_format", ["problem", "envelope"])
def test_with_the_alert_off_a_duplicate_is_a_silent_success(any_store, ledger, error_format):
    client = shop(ledger, any_store, ON_DUPLICATE="ignore", ERROR_FORMAT=error_format)
    data = {FIELD: token_of(client)}
    assert client.post("/orders", data=data).status_code == 201
    second = client.post("/orders", data=data)
    if error_format == "envelope":
        assert (second.status_code, second.json) == (200, {"code": 200, "message": "success", "data": None})
    else:
        assert (second.status_code, second.data) == (204, b"")
    assert_refused(client.post("/orders"), "token_missing", 400)  # a missing token is an error all the same
    assert len(ledger) == 1
