"""Locks and intervals beside everything else that a view may be, and under a store that dies meanwhile."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from flask import request
from flask.views import MethodView

from flask_idempotent import idempotent
from tests.apps.desk import Desk, done, until
from tests.helpers import HEADER, REPLAYED, Ledger, assert_refused, assert_repeated, make_app, token_of
from tests.servers import RedisServer

pytestmark = pytest.mark.case("S13")

LOCK = {"lock": "json.account"}
BOUND = 3.0  # seconds; the promise is about one, and the machine may be busy


@pytest.mark.case("S6")
@pytest.mark.parametrize(
    "policy",
    ["replay", "reject", "ignore", lambda refusal: ("mine", 200)],
    ids=["replay", "reject", "ignore", "callable"],
)
def test_no_policy_makes_a_success_of_what_is_locked_or_too_soon(any_store: Any, policy: Any) -> None:
    desk = Desk({"pay": {**LOCK, "interval": 60}}, any_store, ON_DUPLICATE=policy)
    with desk.at_work("pay", "k-1", account="a"):
        assert_refused(desk.send("pay", "k-2", account="a"), "locked")
        assert_refused(desk.send("pay", "k-2", account="b"), "too_soon", 429)
    assert_refused(desk.send("pay", "k-2", account="a"), "too_soon", 429)
    assert (desk.began("first"), desk.began("x")) == (1, 0)


@pytest.mark.parametrize("options", [{"consume": True}, {"restore_on_error": False}], ids=["consume", "restore off"])
@pytest.mark.parametrize("source", ["header", "token"])
def test_whatever_becomes_of_keys_the_losers_stays_usable(any_store: Any, source: str, options: Any) -> None:
    desk = Desk({"pay": {**LOCK, "source": source, **options}}, any_store)
    keys = ["k-1", "k-2"] if source == "header" else [token_of(desk.app.test_client()) for _ in range(2)]

    def headers(number: int) -> dict[str, str]:
        return {"Idempotency-Key" if source == "header" else HEADER: keys[number]}

    with desk.at_work("pay", headers=headers(0), account="a"):
        for _ in range(2):
            assert_refused(desk.send("pay", headers=headers(1), account="a"), "locked")
    assert desk.send("pay", headers=headers(1), account="a").status_code == 201
    again = desk.send("pay", headers=headers(1), account="a")
    assert again.status_code == (409 if "consume" in options else 201)
    assert desk.began("x") == 1


def test_async_views_and_methods_of_classes_are_locked_too(any_store: Any) -> None:
    app, ledger = make_app(any_store), Ledger()

    def within() -> Any:
        ledger.add()
        if not request.args:
            return "done", 201
        refused = app.test_client().post("/class", json={"account": "a"}, headers={"Idempotency-Key": "k-other"})
        return {"within": refused.get_json()["code"]}, 201

    @app.post("/async")
    @idempotent(source="header", **LOCK)
    async def asynchronous() -> Any:
        return within()

    class Things(MethodView):
        @idempotent(source="header", **LOCK)
        def post(self) -> Any:
            return within()

    app.add_url_rule("/class", view_func=Things.as_view("things"))
    for path in ("/async", "/class"):
        headers = {"Idempotency-Key": "k-1"}
        answer = app.test_client().post(f"{path}?look", json={"account": "a"}, headers=headers)
        assert (answer.status_code, answer.get_json()) == (201, {"within": "locked"})
        assert_repeated(app.test_client().post(f"{path}?look", json={"account": "a"}, headers=headers), answer)
    last = app.test_client().post("/class", json={"account": "a"}, headers={"Idempotency-Key": "k-other"})
    assert (last.status_code, REPLAYED in last.headers, len(ledger)) == (201, False, 3)


@pytest.mark.case("S21")
@pytest.mark.parametrize("ending", ["succeeds", "fails"])
def test_a_store_that_stands_still_meanwhile_keeps_nobody_and_the_lock_opens_when_it_goes_on(
    own_valkey: RedisServer, ending: str
) -> None:
    desk = Desk({"pay": {**LOCK, "interval": 60}, "other": LOCK}, own_valkey.url)
    desk.send("other", "k-0", account="b")  # a connection is open
    frozen: list[float] = []

    def freeze() -> Any:
        own_valkey.freeze()
        frozen.append(time.monotonic())
        if ending == "fails":
            raise ValueError("the view fails")
        return done()

    desk.steps["freezes"] = freeze
    answer = desk.send("pay", "k-1", name="freezes", account="a")

    assert time.monotonic() - frozen[0] < BOUND
    assert answer.status_code == (201 if ending == "succeeds" else 500)
    own_valkey.resume()
    opened: list[Any] = []
    until(lambda: opened.append(desk.send("other", "k-2", account="a")) or opened[-1].status_code == 201)
    assert {response.status_code for response in opened[:-1]} <= {503, 409}
    again = desk.send("pay", "k-3", account="a")
    assert again.status_code == (429 if ending == "succeeds" else 201)


@pytest.mark.case("RACE-01")
def test_a_crowd_with_one_key_and_one_lock_runs_once_and_is_never_told_that_it_is_locked(any_store: Any) -> None:
    desk = Desk({"pay": LOCK}, any_store)
    desk.steps["x"] = lambda: (time.sleep(0.02), done())[1]
    said, barrier = Ledger(), threading.Barrier(12)

    def come() -> None:
        barrier.wait(10)
        answer = desk.send("pay", "k-1", account="a")
        said.add((answer.get_json() or {}).get("code", answer.status_code))

    threads = [threading.Thread(target=come) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert set(said.entries) <= {"201", "in_progress"}
    assert "201" in said.entries
    assert desk.began("x") == 1
