"""Where a client-made key is read from: a header of any name, a parameter, an expression, one of several doors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, NotFound

from flask_idempotent import Idempotency, idempotent
from tests.apps.till import KEY_HEADER, Till, assert_ran
from tests.helpers import FIELD, HEADER, assert_refused, assert_repeated, token_of

pytestmark = pytest.mark.case("S8")

Counted = tuple[Any, Callable[[], int]]
NAME = "idempotency_key"


def refusal(response: Any, reason: str) -> str:
    """Return what a 400 says."""
    assert_refused(response, reason, 400)
    return str(response.get_json()["detail"])


def assert_one_run(till: Till, **sent: Any) -> None:
    """The same twice is one run more."""
    before = len(till.ledger)
    first = till.send(**sent)
    assert_ran(first, before + 1)
    assert_repeated(till.send(**sent), first)
    assert len(till.ledger) == before + 1


# --- a header ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["the option", "the configuration"])
def test_the_header_may_have_another_name(any_store: Any, by: str):
    till = Till(any_store, KEY_HEADER="X-Request-Id") if by == "the configuration" else Till(any_store)
    till.add(**({"name": "X-Request-Id"} if by == "the option" else {}))
    assert_one_run(till, headers={"X-Request-Id": "r-1"})
    assert_one_run(till, headers={"x-request-id": '"r-2"'})
    assert_one_run(till, headers={"X-Request-Id": "r-3", KEY_HEADER: "r-1"})
    assert "X-Request-Id" in refusal(till.send("r-1"), "key_missing")


def test_each_view_has_the_header_that_it_names(any_store: Any):
    till = Till(any_store).add("/one", name="X-Request-Id").add("/two")
    both = {"X-Request-Id": "a", KEY_HEADER: "b"}
    assert_one_run(till, path="/one", headers=both)
    assert_one_run(till, path="/two", headers=both)
    assert_ran(till.send(path="/one", headers={**both, "X-Request-Id": "c"}), 3)
    assert_repeated(till.send(path="/two", headers={**both, "X-Request-Id": "c"}), till.send(path="/two", headers=both))


# --- a parameter -------------------------------------------------------------------------------------------------

PLACES: dict[str, Callable[[str, Any], dict[str, Any]]] = {
    "form": lambda name, key: {"data": {name: key, "amount": "1"}},
    "multipart": lambda name, key: {"data": {name: key, "amount": "1"}, "content_type": "multipart/form-data"},
    "query": lambda name, key: {"query_string": {name: key}},
    "json": lambda name, key: {"json": {name: key, "amount": 1}},
    "path": lambda name, key: {"path": f"/orders/{key}"},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [None, "order_no"])
def test_a_parameter_may_stand_in_form_query_json_and_path(any_store: Any, place: str, name: str | None):
    spelled = name or NAME
    till = Till(any_store).add(source="param", name=name)
    till.add(f"/orders/<{spelled}>", endpoint="numbered", source="param", name=name)
    for key in ("2026-11/7" if place != "path" else "2026-11", "ключ", "a b"):
        assert_one_run(till, **PLACES[place](spelled, key))
    other = NAME if name else "order_no"
    if place != "path":
        assert spelled in refusal(till.send(**PLACES[place](other, "x")), "key_missing")
        assert spelled in refusal(till.send(**PLACES[place](spelled, "")), "key_missing")
        assert spelled in refusal(till.send(**PLACES[place](spelled, "a\x00b")), "key_invalid")
        assert "255" in refusal(till.send(**PLACES[place](spelled, "x" * 256)), "key_invalid")
    assert len(till.ledger) == 3


ORDER = ["form", "query", "json", "path"]


@pytest.mark.parametrize(
    ("first", "second"), [(a, b) for i, a in enumerate(ORDER) for b in ORDER[i + 1 :] if {a, b} != {"form", "json"}]
)
def test_of_several_places_the_first_counts(any_store: Any, first: str, second: str):
    """In the order form, query, JSON, path."""
    till = Till(any_store).add(source="param", fingerprint=False)
    till.add(f"/orders/<{NAME}>", endpoint="numbered", source="param", fingerprint=False)

    def send(one: str, other: str) -> Any:
        return till.send(**PLACES[second](NAME, other) | PLACES[first](NAME, one))

    ran = send("a", "x")
    assert_ran(ran, 1)
    assert_ran(send("b", "x"), 2)  # the second place does not name it
    assert_repeated(send("a", "x"), ran)
    if second != "path":  # another path is another operation
        assert_repeated(send("a", "y"), ran)
        assert_ran(send("", "y"), 3)  # an empty one counts as absent


@pytest.mark.parametrize(
    "sent",
    [
        {"data": {NAME: ["a", "a"]}},
        {"query_string": f"{NAME}=a&{NAME}=a"},
        {"data": f'{{"{NAME}":"a","{NAME}":"a"}}', "content_type": "application/json"},
    ],
    ids=["form", "query", "json"],
)
def test_a_parameter_that_was_sent_twice_is_refused(any_store: Any, sent: dict[str, Any]):
    till = Till(any_store).add(source="param")
    assert f"{NAME} was sent twice" in refusal(till.send(**sent), "key_invalid")
    assert len(till.ledger) == 0


def test_what_json_may_hold_as_a_key(any_store: Any):
    till = Till(any_store).add(source="param", name="no", fingerprint=False)
    one_key = [1, "1", 1.0]
    first = till.send(json={"no": one_key[0]})
    assert_ran(first, 1)
    for spelled in one_key:
        assert_repeated(till.send(json={"no": spelled}), first)
    for number, other in enumerate([0, -1, 1.5, True, "True", [1], [1, 1], ["11"], [[1], 1]], start=2):
        assert_ran(till.send(json={"no": other}), number)
    for absent in (None, "", [], " ", [1, None], [""]):
        assert "no" in refusal(till.send(json={"no": absent}), "key_missing")
    for unfit in ({}, {"a": 1}, [{}], "a\nb", "x" * 256):
        assert "no" in refusal(till.send(json={"no": unfit}), "key_invalid")
    for body in ("[1]", '"no"', "{", ""):
        assert "no" in refusal(till.send(data=body, content_type="application/json"), "key_missing")


def test_a_converted_view_argument_is_a_key_by_its_value(any_store: Any):
    till = Till(any_store)
    till.add(f"/uuid/<uuid:{NAME}>", endpoint="uuid", source="param", scene="pay", fingerprint=lambda **_: "same")
    till.add(f"/int/<int:{NAME}>", endpoint="int", source="param")
    known = UUID("8e03978e-40d5-43dd-bc93-6894a57f9324")
    assert_one_run(till, path=f"/uuid/{known}")
    assert_one_run(till, path="/int/7")
    assert_ran(till.send(path="/int/8"), 3)


# --- one of several doors ----------------------------------------------------------------------------------------


def test_of_two_doors_the_first_that_is_present_counts(any_store: Any):
    till = Till(any_store).add(source=("token", "header"))
    token = token_of(till.client)
    assert_one_run(till, headers={HEADER: token})
    assert_one_run(till, headers={KEY_HEADER: "k"})
    first = till.send(headers={HEADER: token_of(till.client), KEY_HEADER: "k"})  # the token counts, not the used key
    assert_ran(first, 3)
    data = {FIELD: token_of(till.client)}
    again = till.send("k", data=data)
    assert_ran(again, 4)
    assert_repeated(till.send("other", data=data), again)


def test_a_malformed_value_in_the_first_door_is_refused_and_the_second_not_asked(any_store: Any):
    till = Till(any_store).add(source=("token", "header")).add("/reversed", source=("header", "token"))
    token = token_of(till.client)
    refusal(till.send("k", headers={HEADER: "no token"}), "token_invalid")
    assert_refused(till.send("k", headers={HEADER: "0" * 32}), "token_unknown")
    refusal(till.send("a,b", "/reversed", headers={HEADER: token}), "key_invalid")
    assert len(till.ledger) == 0
    assert_one_run(till, key="", headers={HEADER: token})  # an empty one counts as absent
    assert_one_run(till, key="k", headers={HEADER: ""})


@pytest.mark.parametrize(
    ("source", "reason"),
    [(("token", "header"), "token_missing"), (("header", "token"), "key_missing"), (("param", "token"), "key_missing")],
)
def test_with_no_door_present_the_first_ones_reason_is_given(any_store: Any, source: Any, reason: str):
    till = Till(any_store).add(source=source)
    refusal(till.send(), reason)
    assert len(till.ledger) == 0


def test_an_expression_is_the_last_door(any_store: Any):
    till = Till(any_store).add(source=("token", "header"), key="json.no", fingerprint=False)
    first = till.send("h", json={"no": 1})
    assert_ran(first, 1)
    assert_repeated(till.send("h", json={"no": 2}), first)
    assert_one_run(till, json={"no": 2})
    token = {HEADER: token_of(till.client)}
    assert_ran(till.send("h", json={"no": 2}, headers=token), 3)
    refusal(till.send(json={}), "token_missing")


# --- optional, and unasked ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "keyed", "malformed"),
    [
        ({"source": "header"}, {"headers": {KEY_HEADER: "k"}}, {"headers": {KEY_HEADER: "a,b"}}),
        ({"source": "param"}, {"json": {NAME: "k"}}, {"json": {NAME: {}}}),
        ({"key": "json.no"}, {"json": {"no": "k"}}, {"json": {"no": {}}}),
        ({"key": lambda: request.args.get("no")}, {"query_string": {"no": "k"}}, {"query_string": {"no": "\x00"}}),
    ],
    ids=["header", "param", "expression", "callable"],
)
def test_an_optional_key_that_is_not_there_guards_nothing(counted: Counted, options: Any, keyed: Any, malformed: Any):
    store, count = counted
    till = Till(store).add(required=False, **options)
    for number in (1, 2):
        assert_ran(till.send(), number)
    refusal(till.send(**malformed), "key_invalid")
    assert (len(till.ledger), count()) == (2, 0)
    assert_one_run(till, **keyed)
    assert (len(till.ledger), count()) == (3, 1)


def test_an_optional_token_that_is_not_there_guards_nothing(any_store: Any):
    till = Till(any_store).add(source="token", required=False)
    for number in (1, 2):
        assert_ran(till.send(), number)
    assert_one_run(till, headers={HEADER: token_of(till.client)})
    refusal(till.send(headers={HEADER: "no token"}), "token_invalid")
    assert_refused(till.send(headers={HEADER: "0" * 32}), "token_unknown")


@pytest.mark.parametrize("raised", [HTTPException(), HTTPException(response=Response("no", 418)), NotFound()])
def test_a_key_that_ends_the_request_runs_nothing(raised: HTTPException) -> None:
    """Whatever a callable aborts with: an exception without a response of its own is no leave to go on."""
    ran = []

    def end(**_: Any) -> Any:
        raise raised

    app = Flask("app")
    app.testing = False
    Idempotency(app)
    app.add_url_rule("/pay", view_func=idempotent(key=end)(lambda: ran.append(1) or "done"), methods=["POST"])
    answer = app.test_client().post("/pay")
    assert (ran, answer.get_data(as_text=True)) == ([], unguarded(raised))


def unguarded(raised: HTTPException) -> str:
    """What Flask itself makes of it."""
    app = Flask("app")

    def end() -> Any:
        raise raised

    app.add_url_rule("/pay", view_func=end, methods=["POST"])
    return app.test_client().post("/pay").get_data(as_text=True)
