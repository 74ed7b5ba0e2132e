"""What counts as nothing, and what goes before what."""

from __future__ import annotations

from typing import Any

import pytest
from flask import request

from flask_idempotent import idempotent
from tests.helpers import Ledger, assert_refused, assert_repeated, make_app


@pytest.mark.case("S8")
def test_a_blank_parameter_is_none_and_the_next_place_is_asked() -> None:
    app, ledger = make_app(), Ledger()

    @app.post("/pay")
    @idempotent(source="param")
    def pay() -> Any:
        return {"number": ledger.add()}, 201

    client = app.test_client()
    for _ in range(2):
        assert client.post("/pay?idempotency_key=k-1", data={"idempotency_key": "  "}).status_code == 201
    assert_refused(client.post("/pay", data={"idempotency_key": " \t"}), "key_missing", 400)
    assert len(ledger) == 1


@pytest.mark.case("S8")
def test_an_argument_of_the_view_goes_before_what_the_request_holds() -> None:
    app, ledger = make_app(), Ledger()

    @app.post("/pay/<json>")
    @idempotent(key="json")
    def pay(json: str) -> Any:
        return {"order": json, "number": ledger.add()}, 201

    client = app.test_client()
    answers = [client.post(f"/pay/{order}", json={"sum": 1}).get_json() for order in ("a", "b", "a")]
    assert answers == [{"order": "a", "number": 1}, {"order": "b", "number": 2}, {"order": "a", "number": 1}]


@pytest.mark.case("S8", "BODY-03")
@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_that_is_read_whole_for_its_key_counts_by_its_meaning(chunked: bool) -> None:
    app, ledger = make_app(MAX_BODY=10), Ledger()

    @app.post("/callback")
    @idempotent(key="json.transaction")
    def callback() -> Any:
        return {"number": ledger.add(), "amount": request.get_json()["amount"]}, 201

    def post(text: str) -> Any:
        environ = {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": ""}
        overrides = environ if chunked else {}
        kind = "application/json"
        return app.test_client().post("/callback", data=text, content_type=kind, environ_overrides=overrides)

    first = post('{"transaction": "T-1", "amount": 5}')
    assert (first.status_code, first.get_json()["amount"]) == (201, 5)
    assert_repeated(post('{"amount":5.0,"transaction":"T-1"}'), first)
    assert_refused(post('{"transaction": "T-1", "amount": 6}'), "key_reused", 422)
    assert len(ledger) == 1
