"""draft-ietf-httpapi-idempotency-key-header-07, statement by statement: rows 12 to 19 of its list of assertions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask, abort, make_response, request

from flask_idempotent import idempotent
from tests.apps.till import KEY_HEADER, Till, assert_ran
from tests.apps.who import basic
from tests.helpers import Ledger, assert_never_logged, assert_refused, assert_repeated, make_app
from tests.live import HOST, free_port
from tests.servers import RedisServer

pytestmark = pytest.mark.case("S8")

KEY = {KEY_HEADER: '"k-1"'}


def elsewhere(call: Callable[[], Any]) -> Any:
    """Call in another thread, as another worker would."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(timeout=10)


def nested(store: Any, inner: Callable[[Flask], Any], **options: Any) -> tuple[Any, Ledger]:
    """Post to a view that sends, while it runs, what ``inner`` sends; return the answer to that, and the ledger."""
    app, ledger, answers = make_app(store), Ledger(), []

    @app.post("/orders")
    @idempotent(source="header", **options)
    def order() -> tuple[str, int]:
        if ledger.add() == 1:
            answers.append(elsewhere(lambda: inner(app)))
        return "made", 201

    assert app.test_client().post("/orders", json={"amount": 1}, headers=KEY).status_code == 201
    return answers[0], ledger


def test_row_12_a_first_request_is_processed_normally(any_store: Any):
    till = Till(any_store).add()
    for number in (1, 2, 3):
        first = till.send(f'"k-{number}"', json={"amount": 1})
        assert_ran(first, number)
        assert_repeated(till.send(f'"k-{number}"', json={"amount": 1}), first)
    assert len(till.ledger) == 3


CHANGED: dict[str, Any] = {
    "another value": {"json": {"amount": 2}},
    "a member more": {"json": {"amount": 1, "gift": True}},
    "a query": {"json": {"amount": 1}, "query_string": {"fast": "1"}},
    "another type": {"data": {"amount": "1"}},
    "nothing": {},
}


@pytest.mark.parametrize("change", CHANGED)
def test_rows_7_and_13_another_payload_is_refused_after_the_end(any_store: Any, policy: str, change: str):
    till = Till(any_store, ON_DUPLICATE=policy).add()
    first = till.send("k", json={"amount": 1})
    assert_ran(first, 1)
    assert_refused(till.send("k", **CHANGED[change]), "key_reused", 422)
    assert_repeated(till.send("k", json={"amount": 1}), first, policy)
    assert len(till.ledger) == 1


@pytest.mark.parametrize("change", CHANGED)
def test_rows_7_and_13_another_payload_is_refused_while_the_first_runs(any_store: Any, change: str):
    second, ledger = nested(
        any_store, lambda app: app.test_client().post("/orders", headers=KEY, **CHANGED[change]), on_duplicate="ignore"
    )
    assert_refused(second, "key_reused", 422)
    assert len(ledger) == 1


@pytest.mark.parametrize("lease", [300, 1.5])
def test_row_14_a_retry_while_it_runs_is_a_409_with_a_hint_when_to_come_back(any_store: Any, lease: float):
    second, ledger = nested(
        any_store, lambda app: app.test_client().post("/orders", json={"amount": 1}, headers=KEY), lease=lease
    )
    assert_refused(second, "in_progress", 409)
    assert 1 <= int(second.headers["Retry-After"]) <= 2
    assert len(ledger) == 1


RESULTS: dict[str, Callable[[], Any]] = {
    "JSON": lambda: ({"made": True}, 201, {"Location": "/orders/1", "ETag": '"1"'}),
    "redirect": lambda: ("", 303, {"Location": "/orders/1"}),
    "empty": lambda: ("", 204),
    "bytes": lambda: make_response(bytes(range(256)), 202),
    "a success that is raised": lambda: abort(make_response("made", 200)),
}


@pytest.mark.parametrize("result", RESULTS)
def test_row_15_a_retry_after_completion_gets_the_first_result(any_store: Any, result: str):
    app, ledger = make_app(any_store), Ledger()

    @app.post("/orders")
    @idempotent(source="header")
    def order() -> Any:
        ledger.add()
        return RESULTS[result]()

    client = app.test_client()
    first, second = client.post("/orders", headers=KEY), client.post("/orders", headers=KEY)
    assert first.status_code < 400
    assert_repeated(second, first)
    for name in ("Location", "ETag", "Content-Length"):
        assert second.headers.get(name) == first.headers.get(name)
    assert len(ledger) == 1


def _validating(store: Any, **options: Any) -> tuple[Any, Ledger]:
    """Post an amount: below 0 is a 400, 0 breaks the view, others are booked."""
    app, ledger = make_app(store), Ledger()

    @app.post("/orders")
    @idempotent(source="header", **options)
    def order() -> Any:
        ledger.add(amount := request.get_json()["amount"])
        if amount < 0:
            return {"error": "below zero"}, 400
        return {"share": 100 // amount}, 201

    client = app.test_client()
    return lambda amount: client.post("/orders", json={"amount": amount}, headers=KEY), ledger


@pytest.mark.parametrize(("amount", "status"), [(-1, 400), (0, 500)])
def test_row_15_errors_are_not_kept_so_that_a_corrected_retry_goes_through(any_store: Any, amount: int, status: int):
    send, ledger = _validating(any_store)
    assert send(amount).status_code == status
    corrected = send(5)
    assert (corrected.status_code, corrected.get_json()) == (201, {"share": 20})
    assert_repeated(send(5), corrected)
    assert ledger.entries == [str(amount), "5"]


def test_row_15_an_app_may_keep_its_errors_by_final(any_store: Any):
    send, ledger = _validating(any_store, final=lambda response: response.status_code < 500)
    refused = send(-1)
    assert refused.status_code == 400
    assert_repeated(send(-1), refused)
    assert_refused(send(5), "key_reused", 422)
    assert ledger.entries == ["-1"]


def test_row_16_an_uncorrected_retry_fails_again_the_same_way(any_store: Any):
    send, ledger = _validating(any_store)
    answers = [send(-1) for _ in range(3)]
    assert {(answer.status_code, answer.text) for answer in answers} == {(400, '{"error":"below zero"}\n')}
    corrected = send(5)
    assert_repeated(send(5), corrected)
    assert ledger.entries == ["-1", "-1", "-1", "5"]


def test_row_16_what_is_no_request_changes_nothing(any_store: Any):
    till = Till(any_store).add()
    for key in (None, "", "a,b"):
        refusals = [till.send(key) for _ in range(3)]
        assert len({(refusal.status_code, refusal.text) for refusal in refusals}) == 1
        assert refusals[0].status_code == 400
    assert len(till.ledger) == 0


def test_row_17_a_key_is_validated_before_anything_is_asked():
    till = Till(f"redis://{HOST}:{free_port()}/0").add().add("/param", source="param", name="no")
    assert_refused(till.send("a,b"), "key_invalid", 400)
    assert_refused(till.send(path="/param", json={"no": "a\x00b"}), "key_invalid", 400)
    assert_refused(till.send("good"), "store_unavailable", 503)
    assert len(till.ledger) == 0


def test_row_17_a_key_is_looked_up_together_with_who_is_asking(any_store: Any):
    till = Till(any_store).add(principal=lambda: request.authorization and request.authorization.username)
    ann, bob = (till.send("k", headers=basic(name)) for name in ("ann", "bob"))
    assert_ran(ann, 1)
    assert_ran(bob, 2)
    assert_repeated(till.send("k", headers=basic("ann")), ann)
    assert_repeated(till.send("k", headers=basic("bob")), bob)
    assert len(till.ledger) == 2


def test_row_17_no_key_is_stored_or_logged_as_it_came(valkey: RedisServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    secret = "8e03978e-40d5-43dd-bc93-6894a57f9324"
    till = Till(valkey.url).add().add("/param", source="param", name="no").add("/both", key="(json.no, json.no)")
    for path in ("/orders", "/param", "/both"):
        first = till.send(f'"{secret}"', path, json={"no": secret})
        assert first.status_code == 201
        assert_repeated(till.send(f'"{secret}"', path, json={"no": secret}), first)
        assert_refused(till.send(f'"{secret}"', path, json={"no": secret, "more": 1}), "key_reused", 422)
    till.send(f'"{secret}')
    stored = [key + (valkey.control.get(key) or b"") for key in valkey.control.scan_iter()]
    assert len(stored) == 3
    assert not any(secret.encode() in record for record in stored)
    assert any("duplicate" in record.getMessage() for record in caplog.records)
    assert_never_logged([secret], caplog.records)


def test_row_18_on_a_marked_view_unsafe_methods_are_guarded_and_safe_ones_never(any_store: Any):
    till = Till(any_store).add("/orders", "GET", "POST", "PUT", "PATCH", "DELETE")
    for method in ("POST", "PATCH", "PUT", "DELETE"):
        before = len(till.ledger)
        first = till.send("k", method=method)
        assert_ran(first, before + 1)
        assert_repeated(till.send("k", method=method), first)
        assert_refused(till.send(method=method), "key_missing", 400)
        for number in (2, 3):
            assert_ran(till.send("k", method="GET"), before + number)
    assert [till.send("k", method=method).status_code for method in ("HEAD", "OPTIONS")] == [201, 200]


def test_row_19_a_key_that_was_sent_unasked_means_nothing_to_an_unmarked_route(any_store: Any):
    till = Till(any_store).add().add_unmarked("/plain", "POST", "PATCH")
    for number, (key, method) in enumerate([("k", "POST"), ("k", "POST"), ("a,b", "PATCH"), ("k", "PATCH")], start=1):
        assert_ran(till.send(key, "/plain", method), number)
    first = till.send("k")
    assert_ran(first, 5)
    assert_repeated(till.send("k"), first)
