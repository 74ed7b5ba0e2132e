"""``interval=``: the same one may not do the same again within so many seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from flask import abort, request

from flask_idempotent import current_claim, idempotent
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock
from tests.apps.desk import Desk, done, until
from tests.helpers import HEADER, Ledger, assert_refused, assert_repeated, events_logged, make_app, token_of
from tests.servers import RedisServer
from tests.web.test_lock import LosesTheLock

pytestmark = pytest.mark.case("S21")

ALONE = {"source": None, "interval": 2}
LOUD = (logging.WARNING, logging.ERROR)


def desk_of(clock: FakeClock | None = None, store: Any = None, **more: Any) -> Desk:
    views = {"create": ALONE, "other": ALONE, "pay": {"interval": 2}}
    return Desk(views, store, **({"clock": clock} if clock else {}), **more)


def assert_too_soon(response: Any, left: int | None = None) -> None:
    assert_refused(response, "too_soon", 429)
    if left is not None:
        assert response.headers["Retry-After"] == str(left)


def visitor(address: str) -> dict[str, Any]:
    return {"environ_base": {"REMOTE_ADDR": address}}


# -- two within, one after -----------------------------------------------------------------------------------------


def test_of_two_within_the_interval_one_runs_and_one_more_after_it() -> None:
    clock = FakeClock()
    desk = desk_of(clock)

    assert desk.send("create").status_code == 201
    for passed, left in ((0, 2), (0.9, 2), (0.2, 1), (0.8, 1)):
        clock.advance(passed)
        assert_too_soon(desk.send("create"), left)
    clock.advance(0.1)
    assert desk.send("create").status_code == 201
    assert desk.began("x") == 2


def test_a_real_server_counts_the_same(clock_valkey: RedisServer) -> None:
    desk = Desk({"create": {**ALONE, "interval": 60}}, clock_valkey.url)
    assert desk.send("create").status_code == 201
    clock_valkey.move_clock(30)
    refused = desk.send("create")
    assert_too_soon(refused)
    assert 28 <= int(refused.headers["Retry-After"]) <= 30
    clock_valkey.move_clock(31)
    assert desk.send("create").status_code == 201
    assert_too_soon(desk.send("create"))
    assert desk.began("x") == 2


def test_the_window_slides_from_the_last_one_that_ran_and_a_refusal_does_not_lengthen_it() -> None:
    clock = FakeClock()
    desk = desk_of(clock)
    said = []
    for _ in range(9):
        said.append(desk.send("create").status_code)
        clock.advance(0.75)
    assert said == [201, 429, 429] * 3


@pytest.mark.parametrize("config", [{}, {"ERROR_FORMAT": "envelope"}], ids=["problem", "envelope"])
def test_too_soon_in_either_shape(config: dict[str, Any]) -> None:
    desk = desk_of(**config)
    desk.send("create")
    refused = desk.send("create")
    assert_too_soon(refused, 2)
    assert (refused.get_json()["code"] == 429) is bool(config)


def test_of_a_crowd_of_one_user_one_runs(any_store: Any) -> None:
    desk = Desk({"create": {**ALONE, "interval": 60}}, any_store)
    said, barrier = Ledger(), threading.Barrier(16)

    def come() -> None:
        barrier.wait(10)
        said.add(desk.send("create").status_code)

    threads = [threading.Thread(target=come) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(said.entries) == ["201"] + ["429"] * 15
    assert desk.began("x") == 1


# -- of whom, and of what ------------------------------------------------------------------------------------------


def test_anonymous_visitors_do_not_block_each_other(any_store: Any) -> None:
    desk = desk_of(store=any_store)
    for address in ("198.51.100.1", "198.51.100.2", "2001:db8:1::1", "2001:db8:2::1"):
        assert desk.send("create", **visitor(address)).status_code == 201
    for address in ("198.51.100.1", "::ffff:198.51.100.2", "2001:db8:1::abcd"):  # one visitor has 64 bits of IPv6
        assert_too_soon(desk.send("create", **visitor(address)))
    assert desk.began("x") == 4


def test_one_user_on_two_devices_is_one_and_two_users_behind_one_address_are_two(any_store: Any) -> None:
    desk = desk_of(store=any_store, PRINCIPAL=lambda: request.headers.get("X-User"))

    def send(name: str, address: str) -> Any:
        return desk.send("create", headers={"X-User": name}, **visitor(address))

    assert send("ann", "198.51.100.1").status_code == 201
    assert_too_soon(send("ann", "203.0.113.9"))
    assert send("ben", "198.51.100.1").status_code == 201
    assert desk.send("create", **visitor("198.51.100.1")).status_code == 201


def test_credentials_that_nobody_verified_make_nobody_another(any_store: Any) -> None:
    """Whoever may write any name there would have an interval for each."""
    desk = desk_of(store=any_store)
    for name in ("ann", "ben"):
        said = desk.send("create", headers={"Authorization": f"Bearer {name}"}, **visitor("198.51.100.1"))
        assert (said.status_code == 201) is (name == "ann")
    assert_too_soon(said)
    assert desk.send("create", headers={"Authorization": "Bearer ann"}, **visitor("203.0.113.9")).status_code == 201


def test_another_endpoint_has_an_interval_of_its_own_and_another_path_has_not(any_store: Any) -> None:
    desk = desk_of(store=any_store)
    assert desk.send("create/here").status_code == 201
    assert_too_soon(desk.send("create/there"))
    assert desk.send("other").status_code == 201


# -- beside a key or token -----------------------------------------------------------------------------------------


def test_a_key_that_came_too_soon_stays_usable_and_one_that_is_done_is_replayed() -> None:
    clock = FakeClock()
    desk = desk_of(clock)
    first = desk.send("pay", "k-1")
    assert_repeated(desk.send("pay", "k-1"), first)
    assert_too_soon(desk.send("pay", "k-2"), 2)
    clock.advance(2)
    second = desk.send("pay", "k-2")
    assert second.status_code == 201
    assert_repeated(desk.send("pay", "k-2"), second)
    assert_refused(desk.send("pay"), "key_missing", 400)
    assert desk.began("x") == 2


def test_a_forms_token_that_came_too_soon_stays_good() -> None:
    clock = FakeClock()
    desk = Desk({"create": {"source": "token", "interval": 2}}, clock=clock)
    one, two = (token_of(desk.app.test_client()) for _ in range(2))
    assert desk.send("create", headers={HEADER: one}).status_code == 201
    assert_too_soon(desk.send("create", headers={HEADER: two}))
    clock.advance(2)
    assert desk.send("create", headers={HEADER: two}).status_code == 201


# -- given back ----------------------------------------------------------------------------------------------------


def _raise() -> Any:
    raise ValueError("the view fails")


def _again() -> Any:
    current_claim.restore()
    return "the form, again", 200


FAILURES: dict[str, Callable[[], Any]] = {
    "exception": _raise,
    "503": lambda: ("busy", 503),
    "aborted 422": lambda: abort(422),
    "restored": _again,
}


@pytest.mark.parametrize("restore", [True, False], ids=["restore on", "restore off"])
@pytest.mark.parametrize("path", ["create", "pay"], ids=["alone", "beside a key"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_one_gives_its_interval_back(any_store: Any, failure: str, path: str, restore: bool) -> None:
    desk = desk_of(store=any_store, RESTORE_ON_ERROR=restore)
    desk.steps["fails"] = FAILURES[failure]

    assert desk.send(path, "k-1", name="fails").status_code != 201
    assert desk.send(path, "k-2").status_code == 201
    assert_too_soon(desk.send(path, "k-3"))


@pytest.mark.parametrize("path", ["create", "pay"], ids=["alone", "beside a key"])
def test_what_was_kept_is_not_given_back(any_store: Any, path: str) -> None:
    desk = desk_of(store=any_store)
    desk.steps["fails"] = lambda: (current_claim.keep(), _raise())
    assert desk.send(path, "k-1", name="fails").status_code == 500
    assert_too_soon(desk.send(path, "k-2"), 2)


def test_a_failure_while_others_were_refused_gives_it_back_to_them() -> None:
    desk = desk_of()
    desk.steps["fails"] = _raise
    with desk.at_work("create", name="fails"):
        assert_too_soon(desk.send("create"))
    assert desk.send("create").status_code == 201


def test_what_never_entered_the_view_uses_no_interval(any_store: Any) -> None:
    shut = [True]

    def door(view: Any) -> Any:
        @wraps(view)
        def guarded(**kwargs: Any) -> Any:
            return ("shut", 200) if shut else view(**kwargs)

        return guarded

    desk = desk_of(store=any_store, layers=[door])
    assert desk.send("create").text == "shut"
    shut.clear()
    assert desk.send("create").status_code == 201
    assert_too_soon(desk.send("create"))


def test_a_slow_one_that_fails_takes_nothing_from_the_next(caplog: pytest.LogCaptureFixture) -> None:
    """Its interval was over, and belongs to somebody else by now. That is nobody's mistake."""
    clock = FakeClock()
    desk = desk_of(clock)
    desk.steps["fails"] = _raise
    with desk.at_work("create", name="fails") as slow:
        clock.advance(2)
        assert desk.send("create").status_code == 201
        slow.let_go()
        until(lambda: "end - fails" in desk.ledger.entries)
    assert slow.answer.status_code == 500
    assert_too_soon(desk.send("create"), 2)
    assert events_logged(caplog.records, *LOUD) == []


def test_a_final_that_breaks_leaves_the_interval(any_store: Any) -> None:
    desk = Desk({"create": {**ALONE, "interval": 60, "final": lambda outcome: _raise()}}, any_store)
    assert desk.send("create").status_code == 500
    assert_too_soon(desk.send("create"))


def test_one_whose_reply_was_lost_does_not_count() -> None:
    store = LosesTheLock()
    desk = desk_of(store=store)
    store.lost = 2
    assert_refused(desk.send("create"), "store_unavailable", 503)
    assert desk.send("create").status_code == 201
    assert_too_soon(desk.send("create"))


@pytest.mark.parametrize(("failure", "after"), [(None, 429), ("exception", 201)])
def test_where_views_run_unguarded_a_lost_one_counts_if_it_succeeded(failure: str | None, after: int) -> None:
    store = LosesTheLock()
    desk = desk_of(store=store, STORE_DOWN="pass")
    desk.steps["first"] = FAILURES[failure] if failure else done
    store.lost = 2
    assert desk.send("create", name="first").status_code == (500 if failure else 201)
    assert desk.send("create").status_code == after


# -- other kinds of views ------------------------------------------------------------------------------------------


def test_an_async_view_and_the_method_of_a_class_are_held_to_it_too() -> None:
    from flask.views import MethodView

    app, ledger = make_app(MemoryStore()), Ledger()

    @app.post("/async")
    @idempotent(interval=60)
    async def asynchronous() -> tuple[str, int]:
        if request.args:
            current_claim.restore()
        return f"{ledger.add()}", 200 if request.args else 201

    class Things(MethodView):
        @idempotent(interval=60)
        def post(self) -> tuple[str, int]:
            return f"{ledger.add()}", 201

    app.add_url_rule("/class", view_func=Things.as_view("things"))
    client = app.test_client()

    assert client.post("/async?again").status_code == 200
    for path in ("/async", "/class"):
        assert client.post(path).status_code == 201
        assert_too_soon(client.post(path), 60)
    assert len(ledger) == 3


@pytest.mark.parametrize("options", [{}, {"lock": "json.account"}], ids=["interval", "lock and interval"])
@pytest.mark.parametrize("path", ["create", "pay"], ids=["alone", "beside a key"])
def test_a_decorator_that_tries_twice_is_not_too_soon_for_itself(
    any_store: Any, path: str, options: dict[str, Any]
) -> None:
    tries = Ledger()

    def flaky() -> Any:
        return _raise() if tries.add() == 1 else done()

    def twice(view: Any) -> Any:
        @wraps(view)
        def tried(**kwargs: Any) -> Any:
            try:
                return view(**kwargs)
            except ValueError:
                return view(**kwargs)

        return tried

    views = {"create": {**ALONE, **options}, "pay": {"interval": 2, **options}}
    desk = Desk(views, any_store, layers=[twice])
    desk.steps["flaky"] = flaky
    assert desk.send(path, "k-1", name="flaky", account="a").status_code == 201
    assert_too_soon(desk.send(path, "k-2", account="a"))
    assert (len(tries), desk.began("x")) == (2, 0)
