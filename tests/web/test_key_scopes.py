"""Within what a key is unique, keys that are computed, and the pitfalls of a lock without a record, a key without a
scene."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from flask import Flask, request
from werkzeug.routing import BaseConverter

from flask_idempotent import Idempotency, idempotent
from tests.apps import off_switch
from tests.apps.till import KEY_HEADER, Till, assert_ran
from tests.helpers import Ledger, assert_refused, assert_repeated

pytestmark = pytest.mark.case("S8")


# --- pitfalls ----------------------------------------------------------------------------------------------------


@pytest.mark.case("P3", "S13")
@pytest.mark.parametrize("lock", [None, "json.account"])
def test_two_calls_one_after_the_other_are_one_run_though_nothing_is_locked_in_between(any_store: Any, lock: Any):
    till = Till(any_store).add(lock=lock, source="param", name="no")
    first = till.send(json={"no": 1, "account": "a"})
    assert_ran(first, 1)
    assert_ran(till.send(json={"no": 2, "account": "a"}), 2)  # the lock is free
    assert_repeated(till.send(json={"no": 1, "account": "a"}), first)
    assert len(till.ledger) == 2


@pytest.mark.case("P5", "S9")
@pytest.mark.parametrize("source", ["header", "param", "key"])
def test_the_same_number_in_two_scenes_runs_in_both(any_store: Any, source: str):
    options = {"key": "json.idempotency_key"} if source == "key" else {"source": source}
    till = Till(any_store).add("/orders", scene="order", **options).add("/refunds", scene="refund", **options)
    sent = {"key": "1", "json": {"idempotency_key": "1"}}
    order, refund = till.send(**sent), till.send(path="/refunds", **sent)
    assert_ran(order, 1)
    assert_ran(refund, 2)
    assert_repeated(till.send(**sent), order)
    assert_repeated(till.send(path="/refunds", **sent), refund)
    assert len(till.ledger) == 2


# --- scopes ------------------------------------------------------------------------------------------------------


def test_a_scene_joins_endpoints_methods_and_paths(any_store: Any):
    """Method and path still count as content: what differs in them is refused, not run."""
    till = (
        Till(any_store)
        .add("/orders", "POST", "PUT", scene="order")
        .add("/v2/orders/<id>", endpoint="v2", scene="order")
    )
    first = till.send("k")
    assert_ran(first, 1)
    for path, method in (("/orders", "PUT"), ("/v2/orders/1", "POST")):
        assert_refused(till.send("k", path, method), "key_reused", 422)
    assert_repeated(till.send("k"), first)
    assert_ran(till.send("k2", "/v2/orders/1"), 2)
    assert_refused(till.send("k2", "/v2/orders/2"), "key_reused", 422)
    assert len(till.ledger) == 2


def test_without_a_scene_endpoint_method_and_path_keep_keys_apart(any_store: Any):
    till = Till(any_store)
    for name in ("a", "b"):  # two endpoints whose paths can be the same
        till.add(f"/{name}/<id>", "POST", "PUT", endpoint=name, fingerprint=False)
    asked = [(path, method) for path in ("/a/1", "/a/2", "/b/1") for method in ("POST", "PUT")]
    firsts = [till.send("k", path, method) for path, method in asked]
    assert till.ledger.entries == [f"{method} {path}" for path, method in asked]
    for (path, method), first in zip(asked, firsts, strict=True):
        assert_repeated(till.send("k", path, method), first)


def test_two_endpoints_with_one_path_on_two_hosts_keep_keys_apart(any_store: Any):
    app, ledger = off_switch(Flask(__name__, host_matching=True, static_host="static")), Ledger()
    app.config["IDEMPOTENCY_TOKEN_URL"] = None
    Idempotency(app, store=any_store)
    for host in ("one", "two"):

        def order() -> tuple[str, int]:
            return f"{request.host} {ledger.add(request.host)}", 201

        app.add_url_rule("/orders", host, idempotent(source="header")(order), methods=["POST"], host=host)

    def send(host: str) -> Any:
        return app.test_client().post("/orders", base_url=f"http://{host}", headers={KEY_HEADER: "k"})

    firsts = [send("one"), send("two")]
    assert ledger.entries == ["one", "two"]
    assert_repeated(send("one"), firsts[0])
    assert_repeated(send("two"), firsts[1])


def test_a_form_token_and_a_key_of_the_same_text_are_two(any_store: Any):
    till = Till(any_store).add("/keyed", scene="order").add("/form-order", source="token", scene="order")
    page = till.client.get("/form").text
    token = page.split('value="')[1][:36]
    assert_ran(till.send(token, "/keyed"), 1)
    assert_ran(till.send(path="/form-order", headers={"Idempotency-Token": token}), 2)
    assert_refused(till.send(token, "/form-order"), "token_missing", 400)
    assert len(till.ledger) == 2


# --- computed keys -----------------------------------------------------------------------------------------------


class Order(NamedTuple):
    request_id: str
    count: str  # a method of tuples, too


class OrderConverter(BaseConverter):
    def to_python(self, value: str) -> Order:
        return Order(*value.split("-"))


COMPUTED: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "members": (
        "json.order.request_id",
        {"json": {"order": {"request_id": "r"}}},
        {"json": {"order": {"request_id": 2}}},
    ),
    "two in a list": ("(json.user, json.biz)", {"json": {"user": 1, "biz": 12}}, {"json": {"user": 11, "biz": 2}}),
    "two in a text": ("json.user ~ ':' ~ json.biz", {"json": {"user": 1, "biz": 2}}, {"json": {"user": 2, "biz": 2}}),
    "named like a method": ("json.items", {"json": {"items": ["a"]}}, {"json": {"items": ["b"]}}),
    "a form": ("form.no", {"data": {"no": "1"}}, {"data": {"no": "2"}}),
    "the query": ("args.no", {"query_string": {"no": "1"}}, {"query_string": {"no": "2"}}),
    "a header": ("headers['X-Request-Id']", {"headers": {"X-Request-Id": "1"}}, {"headers": {"X-Request-Id": "2"}}),
    "a view's argument": ("number", {"path": "/orders/a"}, {"path": "/orders/b"}),
    "an object's attribute": ("order.request_id", {"path": "/made/a-1"}, {"path": "/made/b-1"}),
    "a callable": (lambda **given: request.get_json()["no"], {"json": {"no": 1}}, {"json": {"no": 2}}),
    "a callable's list": (lambda **given: [1, request.get_json()["no"]], {"json": {"no": 1}}, {"json": {"no": 2}}),
    "a callable of arguments": (lambda number: number, {"path": "/orders/a"}, {"path": "/orders/b"}),
}


@pytest.mark.parametrize("which", COMPUTED)
def test_a_key_may_be_computed(any_store: Any, which: str):
    key, one, other = COMPUTED[which]
    till = Till(any_store)
    till.app.url_map.converters["order"] = OrderConverter
    till.add(key=key, fingerprint=False).add("/orders/<number>", endpoint="of", key=key, scene="of")
    till.add("/made/<order:order>", endpoint="made", key=key, scene="made")
    first = till.send(**one)
    assert_ran(first, 1)
    assert_repeated(till.send(**one), first)
    second = till.send(**other)
    assert_ran(second, 2)
    assert_repeated(till.send(**other), second)
    assert len(till.ledger) == 2


@pytest.mark.parametrize(
    ("key", "sent", "named"),
    [
        ("(json.user, json.biz)", {"user": 1}, "json.biz"),
        ("(json.user, json.biz)", {"user": 1, "biz": None}, "json.biz"),
        ("(json.user, json.biz)", {"user": "", "biz": 1}, "json.user"),
        ("json.user ~ ':' ~ json.biz", {"user": 1}, "json.biz"),
        ("json.order.no", {"order": {}}, "json.order.no"),
        ("json.order.no", {}, "json.order"),
        ("json.order.no", [1], "json.order"),
        (lambda: request.get_json().get("no"), {}, "the key"),
        (lambda: ("a", request.get_json().get("no")), {}, "the key[1]"),
    ],
)
def test_a_missing_part_is_named(any_store: Any, key: Any, sent: Any, named: str):
    till = Till(any_store).add(key=key)
    for _ in range(2):
        refused = till.send(json=sent)
        assert_refused(refused, "key_missing", 400)
        assert named in refused.get_json()["detail"]
    assert len(till.ledger) == 0


@pytest.mark.parametrize("sent", [{"no": {}}, {"no": {"a": 1}}, {"no": [{}]}, {"no": "a\nb"}, {"no": "x" * 256}])
def test_what_can_be_no_key_is_refused(any_store: Any, sent: Any):
    till = Till(any_store).add(key="json.no")
    assert_refused(till.send(json=sent), "key_invalid", 400)
    assert len(till.ledger) == 0


def test_one_number_in_two_types_is_one_key_and_borders_count(any_store: Any):
    till = Till(any_store).add(key="(json.a, json.b)", fingerprint=False)
    first = till.send(json={"a": 1, "b": "x"})
    assert_ran(first, 1)
    for same in ("1", 1.0):
        assert_repeated(till.send(json={"a": same, "b": "x"}), first)
    for number, (a, b) in enumerate([("1x", "y"), ("1", "xy"), (0, 0), (False, 0)], start=2):
        assert_ran(till.send(json={"a": a, "b": b}), number)


# --- routes that ask for no key ----------------------------------------------------------------------------------


@pytest.mark.case("KEY-10")
def test_an_unmarked_route_ignores_a_key_and_leaves_the_body_alone(any_store: Any):
    till = Till(any_store).add().add_unmarked()
    for number in (1, 2):
        assert_ran(till.send("k", "/plain", json={"amount": 1}), number)
    assert_ran(till.send("not, a key", "/plain"), 3)
    first = till.send("k", json={"amount": 1})
    assert_ran(first, 4)
    assert_repeated(till.send("k", json={"amount": 1}), first)
