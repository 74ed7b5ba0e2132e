"""Row S7: every default, as it is written down and as it works."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from typing import Any

import pytest
from flask import Flask

from flask_idempotent import Idempotency, config, idempotent
from flask_idempotent.extension import state_of
from flask_idempotent.testing import FakeClock
from flask_idempotent.web.marks import Mark
from flask_idempotent.web.problems import Answers
from tests.apps import off_switch
from tests.apps.till import KEY_HEADER, Till, assert_ran
from tests.helpers import FIELD, HEADER, REPLAYED, assert_refused, assert_repeated, token_of

CONFIGURED = {
    "ENABLED": True,
    "STORE": None,
    "STORES": {},
    "PREFIX": "idempotency",
    "TOKEN_TTL": 3600,
    "RESULT_TTL": 86400,
    "LEASE": 300,
    "WAIT": 0,
    "TOKEN_HEADER": "Idempotency-Token",
    "TOKEN_FIELD": "idempotency_token",
    "TOKEN_URL": "/idempotency/token",
    "TOKEN_LOCATIONS": ("header", "form"),
    "KEY_HEADER": "Idempotency-Key",
    "METHODS": ("POST", "PUT", "PATCH", "DELETE"),
    "BINDING": "ip",
    "IPV4_PREFIX": 32,
    "IPV6_PREFIX": 64,
    "PRINCIPAL": None,
    "ON_DUPLICATE": "replay",
    "RESTORE_ON_ERROR": True,
    "MESSAGE": None,
    "ERROR_FORMAT": "problem",
    "DUPLICATE_STATUS": 409,
    "POLICY_URL": None,
    "STORE_DOWN": "refuse",
    "MAX_RESULT": 1_048_576,
    "MAX_BODY": 1_048_576,
}
OPTIONS = {
    "source": None,
    "name": None,
    "key": None,
    "required": True,
    "wait": None,
    "lock": None,
    "interval": None,
    "scene": None,
    "store": None,
    "ttl": None,
    "lease": None,
    "restore_on_error": None,
    "consume": False,
    "on_duplicate": None,
    "fingerprint": None,
    "ignore": (),
    "binding": None,
    "principal": None,
    "final": None,
    "message": None,
    "description": "",
}
IN_FORCE = {
    "scene": "order",
    "scene_given": False,
    "sources": ("token",),
    "key_header": "Idempotency-Key",
    "key_param": "idempotency_key",
    "key": None,
    "key_ttl": 86400,
    "required": True,
    "wait": 0,
    "lock": None,
    "interval": 0,
    "description": "",
    "binding": "ip",
    "token_ttl": 3600,
    "result_ttl": 3600,
    "lease": 300,
    "restore_on_error": True,
    "consume": False,
    "on_duplicate": "replay",
    "fingerprint": None,
    "ignore": (),
    "principal": None,
    "final": None,
    "token_header": "Idempotency-Token",
    "token_field": "idempotency_token",
    "token_locations": ("header", "form"),
    "csrf_field": "csrf_token",
    "store_down": "refuse",
    "max_result": 1_048_576,
    "max_body": 1_048_576,
}
"""What holds for a view with ``@idempotent`` and nothing else, in an app that sets nothing."""


# --- as written --------------------------------------------------------------------------------------------------


@pytest.mark.case("S7")
def test_the_configuration_of_an_app_that_sets_nothing():
    app = off_switch(Flask(__name__))
    Idempotency(app)
    prefixed = {f"IDEMPOTENCY_{name}": value for name, value in CONFIGURED.items()}
    assert {name: value for name, value in app.config.items() if name.startswith("IDEMPOTENCY_")} == prefixed
    assert config.DEFAULTS == CONFIGURED


def test_the_options_of_the_decorator():
    (with_options,) = (found for found in typing.get_overloads(idempotent) if "view" not in found.__annotations__)
    parameters = inspect.signature(with_options).parameters.values()
    assert {parameter.name: parameter.default for parameter in parameters} == OPTIONS
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}


def test_the_mark_says_the_same_as_the_decorator():
    fields = {field.name: field.default for field in dataclasses.fields(Mark) if field.name != "where"}
    assert fields.pop("sources") == ("token",)
    assert fields.pop("interval") == 0
    assert fields == {name: value for name, value in OPTIONS.items() if name not in ("source", "interval")}


@pytest.mark.parametrize("written", ["bare", "called", "every option as it is by default"])
def test_what_is_in_force_where_nothing_is_set(written: str):
    app = Flask(__name__)
    Idempotency(app)

    def order() -> str:
        return ""

    guarded = {"bare": lambda: idempotent(order), "called": lambda: idempotent()(order)}
    app.post("/")(guarded.get(written, lambda: idempotent(**OPTIONS)(order))())
    state = state_of(app)
    state.look()
    rules = state.rules["order", "POST"]
    assert {name: getattr(rules, name) for name in IN_FORCE} == IN_FORCE
    assert rules.answers == Answers("problem", 409, None, None)


# --- as it works -------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def till(clock: FakeClock) -> Till:
    return Till(clock=clock).add(source="token").add("/keyed").add("/param", source="param")


@pytest.mark.case("S7")
def test_a_token_in_header_or_form_lives_an_hour_and_so_does_its_result(till: Till, clock: FakeClock):
    places = [{"headers": {HEADER: token_of(till.client)}}, {"data": {FIELD: token_of(till.client)}}]
    late = {HEADER: token_of(till.client)}
    clock.advance(3599)
    firsts = [till.send(**place) for place in places]
    assert [first.get_json()["number"] for first in firsts] == [1, 2]
    clock.advance(2)
    assert_refused(till.send(headers=late), "token_unknown")
    clock.advance(3597)
    for place, first in zip(places, firsts, strict=True):
        assert_repeated(till.send(**place), first)
    clock.advance(2)
    assert_refused(till.send(**places[0]), "token_unknown")
    token = token_of(till.client)
    for elsewhere in ({"query_string": {FIELD: token}}, {"json": {FIELD: token}}):
        assert_refused(till.send(**elsewhere), "token_missing", 400)


@pytest.mark.case("S7", "KEY-09")
@pytest.mark.parametrize("sent", [{"path": "/keyed", "key": "k"}, {"path": "/param", "json": {"idempotency_key": "k"}}])
def test_a_key_lives_a_day(till: Till, clock: FakeClock, sent: dict[str, Any]):
    first = till.send(**sent)
    assert_ran(first, 1)
    clock.advance(86_399)
    assert_repeated(till.send(**sent), first)
    clock.advance(2)
    assert_ran(till.send(**sent), 2)


@pytest.mark.case("S7")
def test_a_claim_without_news_holds_for_five_minutes_and_a_duplicate_does_not_wait(clock: FakeClock):
    till, seen = Till(clock=clock), []

    @till.app.post("/slow")
    @idempotent(source="header")
    def slow() -> tuple[dict[str, int], int]:
        number = till.ledger.add()
        for seconds in (299, 2) if number == 1 else ():
            clock.advance(seconds)
            seen.append(till.app.test_client().post("/slow", headers={KEY_HEADER: "k"}))
        return {"number": number}, 201

    till.send("k", "/slow")
    assert_refused(seen[0], "in_progress")
    assert seen[0].headers["Retry-After"] == "1"
    assert_ran(seen[1], 2)
    assert len(till.ledger) == 2


@pytest.mark.case("S7", "S6")
def test_a_failure_gives_the_token_back_and_a_duplicate_gets_the_first_answer_to_the_same_address(till: Till):
    outcomes = [500, 400, 201]

    @till.app.post("/fails")
    @idempotent
    def fails() -> tuple[str, int]:
        till.ledger.add()
        return "", outcomes[len(till.ledger) - 1]

    headers = {HEADER: token_of(till.client)}
    assert [till.send(path="/fails", headers=headers).status_code for _ in outcomes] == outcomes
    assert till.send(path="/fails", headers=headers).headers[REPLAYED] == "true"
    stranger = till.client.post("/fails", headers=headers, environ_base={"REMOTE_ADDR": "192.0.2.7"})
    assert_refused(stranger, "token_foreign", 403)
    assert stranger.mimetype == "application/problem+json"
    assert len(till.ledger) == 3


@pytest.mark.case("S7", "S2")
def test_the_token_endpoint_is_where_it_is_by_default_and_says_what_is_in_force(till: Till):
    issued = till.client.get("/idempotency/token").get_json()
    token = issued.pop("token")
    assert issued == {"scene": None, "field": FIELD, "header": HEADER, "expires_in": 3600}
    assert_ran(till.send(headers={issued["header"]: token}), 1)
    assert_refused(till.send(data={issued["field"]: token, "amount": "2"}), "token_reused", 422)
