"""``wait=``: a duplicate stays until the first one is done, takes over what was released, and never outstays."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from flask import request

from flask_idempotent import idempotent
from flask_idempotent.testing import FakeClock
from tests.apps.desk import Desk, until
from tests.helpers import HEADER, REPLAYED, Ledger, assert_refused, assert_repeated, make_app, token_of
from tests.servers import RedisServer

SLACK = 1.2  # seconds; the machine may be busy
LONG = 15  # seconds that nobody waits in a test that passes


def fails() -> Any:
    raise ValueError("the view fails")


def moment() -> None:
    """Time for a waiter to look and sleep; whether it got that far changes no outcome."""
    time.sleep(0.08)


@pytest.mark.case("S6")
def test_a_duplicate_that_waits_gets_the_first_answer(any_store: Any) -> None:
    desk = Desk({"pay": {"wait": LONG}}, any_store)
    with desk.at_work("pay", "k-1") as first, desk.sent("pay", "k-1", name="first") as duplicate:
        moment()
        assert duplicate.waits
        first.let_go()
    assert_repeated(duplicate.answer, first.answer)
    assert desk.began("first") == 1


@pytest.mark.parametrize(
    ("options", "status", "reason"),
    [
        ({"on_duplicate": "reject"}, 409, "duplicate"),
        ({"on_duplicate": "ignore"}, 204, None),
        ({"on_duplicate": lambda refusal: (refusal.state.value, 418)}, 418, None),
    ],
    ids=["reject", "ignore", "callable"],
)
def test_under_every_policy_it_waits_for_the_end(options: dict[str, Any], status: int, reason: str | None) -> None:
    desk = Desk({"pay": {"wait": LONG, **options}})
    with desk.at_work("pay", "k-1") as first, desk.sent("pay", "k-1", name="first") as duplicate:
        moment()
        assert duplicate.waits
        first.let_go()
    assert duplicate.answer.status_code == status
    if reason:
        assert_refused(duplicate.answer, reason)
    if status == 418:
        assert duplicate.answer.text == "done"


@pytest.mark.case("FAIL-01", "FAIL-06")
def test_the_waiter_takes_over_what_was_released(any_store: Any) -> None:
    desk = Desk({"pay": {"wait": LONG}}, any_store)
    with desk.at_work("pay", "k-1") as first:
        first.then = fails
        with desk.sent("pay", "k-1", name="first") as waiter:
            moment()
            del desk.steps["first"]
            first.let_go()
    assert (first.answer.status_code, waiter.answer.status_code) == (500, 201)
    assert REPLAYED not in waiter.answer.headers
    assert desk.began("first") == 2
    assert_repeated(desk.send("pay", "k-1", name="first"), waiter.answer)


@pytest.mark.case("S14")
def test_with_restore_off_a_waiter_is_told_of_the_failure() -> None:
    desk = Desk({"pay": {"wait": LONG, "restore_on_error": False}})
    with desk.at_work("pay", "k-1") as first:
        first.then = fails
        with desk.sent("pay", "k-1", name="first") as waiter:
            moment()
            first.let_go()
    assert_refused(waiter.answer, "failed")
    assert desk.began("first") == 1


@pytest.mark.case("RACE-04")
def test_other_content_does_not_wait(any_store: Any) -> None:
    desk = Desk({"pay": {"wait": LONG}}, any_store)
    with desk.at_work("pay", "k-1"):
        with desk.sent("pay", "k-1", name="other") as other:
            pass
        assert_refused(other.answer, "key_reused", 422)
        assert other.seconds < SLACK
    assert desk.began("other") == 0


@pytest.mark.case("RACE-06")
def test_nobody_waits_beyond_the_limit(any_store: Any) -> None:
    desk = Desk({"pay": {"wait": 0.3}}, any_store)
    with desk.at_work("pay", "k-1"):
        with desk.sent("pay", "k-1", name="first") as duplicate:
            pass
        assert_refused(duplicate.answer, "in_progress")
        assert 1 <= int(duplicate.answer.headers["Retry-After"]) <= 2
        assert 0.3 <= duplicate.seconds < 0.3 + SLACK


@pytest.mark.case("S7")
@pytest.mark.parametrize(
    ("config", "options", "waits"),
    [
        ({}, {}, False),
        ({"WAIT": 0.4}, {}, True),
        ({"WAIT": timedelta(seconds=0.4)}, {}, True),
        ({"WAIT": 60}, {"wait": 0}, False),
        ({"WAIT": 60}, {"wait": 0.4}, True),
        ({}, {"wait": timedelta(seconds=0.4)}, True),
    ],
    ids=str,
)
def test_the_option_goes_before_the_setting_and_nobody_waits_by_default(
    config: dict[str, Any], options: dict[str, Any], waits: bool
) -> None:
    desk = Desk({"pay": options}, **config)
    with desk.at_work("pay", "k-1"):
        with desk.sent("pay", "k-1", name="first") as duplicate:
            pass
        assert_refused(duplicate.answer, "in_progress")
    assert (duplicate.seconds >= 0.4) is waits
    assert duplicate.seconds < 0.4 + SLACK


def test_a_form_waits_as_well(any_store: Any) -> None:
    desk = Desk({"pay": {"wait": LONG, "source": "token"}}, any_store)
    headers = {HEADER: token_of(desk.app.test_client())}
    first_one = desk.at_work("pay", headers=dict(headers))
    with first_one as first, desk.sent("pay", name="first", headers=dict(headers)) as duplicate:
        moment()
        assert duplicate.waits
        first.let_go()
    assert_repeated(duplicate.answer, first.answer)


def test_an_async_view_is_waited_for(any_store: Any) -> None:
    app, ledger = make_app(any_store), Ledger()
    entered, go_on = threading.Event(), threading.Event()

    @app.post("/pay")
    @idempotent(source="header", wait=LONG)
    async def pay() -> Any:
        ledger.add()
        entered.set()
        assert go_on.wait(20)
        return {"sum": request.get_json()["sum"]}, 201

    answers: list[Any] = []

    def send() -> None:
        answers.append(app.test_client().post("/pay", json={"sum": 1}, headers={"Idempotency-Key": "k-1"}))

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert entered.wait(20)
    moment()
    go_on.set()
    for thread in threads:
        thread.join(20)
    answers.sort(key=lambda answer: REPLAYED in answer.headers)
    assert answers[0].status_code == 201
    for answer in answers[1:]:
        assert_repeated(answer, answers[0])
    assert len(ledger) == 1


@pytest.mark.case("FAIL-03")
@pytest.mark.parametrize("restore", [True, False], ids=["restore on", "restore off"])
def test_a_lease_that_ends_meanwhile_ends_the_waiting(restore: bool) -> None:
    clock = FakeClock()
    desk = Desk({"pay": {"wait": LONG, "restore_on_error": restore}}, clock=clock, LEASE=30)
    with desk.at_work("pay", "k-1"):
        with desk.sent("pay", "k-1", name="first") as waiter:
            moment()
            assert waiter.waits
            desk.steps.clear()
            clock.advance(30)
        assert waiter.seconds < SLACK
        if restore:
            assert waiter.answer.status_code == 201
        else:
            assert_refused(waiter.answer, "failed")
    assert desk.began("first") == (2 if restore else 1)


@pytest.mark.case("RACE-06")
def test_among_twenty_that_claim_and_fail_one_waiter_keeps_its_limit(any_store: Any) -> None:
    desk = Desk({"pay": {"wait": 0.3}}, any_store)
    desk.steps["x"] = lambda: (time.sleep(0.01), ("busy", 503))[1]
    over, seconds, said = threading.Event(), [], Ledger()

    def claim_and_fail() -> None:
        while not over.is_set():
            said.add(desk.send("pay", "k-1").status_code)

    threads = [threading.Thread(target=claim_and_fail) for _ in range(20)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(said) > 20)
        for _ in range(4):
            with desk.sent("pay", "k-1") as waiter:
                pass
            seconds.append(waiter.seconds)
            assert waiter.answer.status_code in (503, 409)
    finally:
        over.set()
        for thread in threads:
            thread.join(20)
    assert max(seconds) < 0.3 + SLACK
    assert set(said.entries) == {"503", "409"}


@pytest.mark.case("RACE-06")
def test_a_store_that_stands_still_holds_no_waiter(own_valkey: RedisServer) -> None:
    desk = Desk({"pay": {"wait": LONG}}, own_valkey.url)
    desk.send("pay", "k-0")
    with desk.at_work("pay", "k-1"):
        started = time.monotonic()
        with desk.sent("pay", "k-1", name="first") as waiter:
            moment()
            own_valkey.freeze()
        assert time.monotonic() - started < 1 + SLACK + 1
        assert_refused(waiter.answer, "store_unavailable", 503)
        own_valkey.resume()


@pytest.mark.case("RACE-06", "S6")
def test_a_crowd_that_waits_runs_once_and_is_told_the_same(any_store: Any) -> None:
    desk = Desk({"pay": {"wait": LONG}}, any_store)
    answers: list[Any] = []
    with desk.at_work("pay", "k-1") as first:
        threads = [
            threading.Thread(target=lambda: answers.append(desk.send("pay", "k-1", name="first"))) for _ in range(15)
        ]
        for thread in threads:
            thread.start()
        moment()
        first.let_go()
        for thread in threads:
            thread.join(20)
    assert len(answers) == 15
    for answer in answers:
        assert_repeated(answer, first.answer)
    assert desk.began("first") == 1
