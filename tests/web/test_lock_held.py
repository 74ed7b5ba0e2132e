"""A lock that is held: to the end of a lease, by a heartbeat, against those that wait and against crowds."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from typing import Any

import pytest

from flask_idempotent.core.record import State
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock
from tests.apps.desk import Desk, done, overlaps, until
from tests.helpers import REPLAYED, Ledger, assert_refused, assert_repeated
from tests.web.test_lock import ENDINGS, LOCK

pytestmark = pytest.mark.case("S13")


# -- leases --------------------------------------------------------------------------------------------------------


def test_a_dead_workers_lock_opens_after_the_lease_and_its_late_word_opens_no_other() -> None:
    clock = FakeClock()
    desk = Desk({"pay": LOCK, "close": LOCK}, clock=clock, LEASE=30)
    with desk.at_work("pay", "k-1", account="a") as late:
        clock.advance(29.9)
        assert_refused(desk.send("pay", "k-2", account="a"), "locked")
        clock.advance(0.1)
        with desk.at_work("close", "k-2", name="second", account="a") as second:
            late.let_go()
            until(lambda: "end a first" in desk.ledger.entries)
            assert_refused(desk.send("pay", "k-3", account="a"), "locked")
    assert second.answer.status_code == 201
    assert desk.send("pay", "k-3", account="a").status_code == 201


def test_the_heartbeat_holds_the_lock_of_a_view_that_outlives_its_lease(any_store: Any) -> None:
    desk = Desk({"pay": LOCK}, any_store, LEASE=0.9)
    with desk.at_work("pay", "k-1", account="a"):
        end = time.monotonic() + 2.2
        while time.monotonic() < end:
            assert_refused(desk.send("pay", "k-2", account="a"), "locked")
            time.sleep(0.05)
    assert desk.send("pay", "k-2", account="a").status_code == 201


# -- waiting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
def test_with_wait_the_second_runs_after_the_first(any_store: Any, ending: str) -> None:
    desk = Desk({"pay": {**LOCK, "wait": 15}}, any_store)
    desk.steps["first"] = ENDINGS[ending][0]
    with desk.at_work("pay", "k-1", account="a") as first, desk.sent("pay", "k-2", name="second", account="a") as sent:
        time.sleep(0.1)  # it has looked, or looks when the lock is open: the outcome is the same
        assert sent.waits
        first.let_go()

    assert sent.answer.status_code == 201
    assert [entry.split()[::2] for entry in desk.ledger.entries] == [
        ["begin", "first"],
        ["end", "first"],
        ["begin", "second"],
        ["end", "second"],
    ]


def test_nobody_waits_for_a_lock_longer_than_the_limit_and_the_key_stays_usable(any_store: Any) -> None:
    desk = Desk({"pay": {**LOCK, "wait": 0.3}}, any_store)
    with desk.at_work("pay", "k-1", account="a"):
        with desk.sent("pay", "k-2", account="a") as sent:
            pass
        assert_refused(sent.answer, "locked")
        assert 0.3 <= sent.seconds < 1.5
    assert desk.send("pay", "k-2", account="a").status_code == 201


def test_the_limit_is_one_for_key_and_lock_together() -> None:
    entities = iter("aba")
    desk = Desk({"pay": {"lock": lambda: next(entities), "wait": 1.2}})
    desk.steps["fails"] = lambda: ("busy", 503)
    first, second = desk.at_work("pay", "k-1"), desk.at_work("pay", "k-2", name="fails")
    with first, second as key, desk.sent("pay", "k-2", name="fails") as waiter:
        time.sleep(0.9)
        key.let_go()
    assert_refused(waiter.answer, "locked")
    assert 1.2 <= waiter.seconds < 2.0
    assert key.answer.status_code == 503


def test_the_key_of_one_that_waits_for_a_lock_is_not_taken_over(any_store: Any) -> None:
    desk = Desk({"pay": {**LOCK, "wait": 15}}, any_store, LEASE=0.6)
    with desk.at_work("pay", "k-1", account="a") as first, desk.sent("pay", "k-2", account="a") as waiter:
        time.sleep(0.1)
        with desk.sent("pay", "k-2", account="a") as duplicate:
            time.sleep(1.8)  # three leases
            assert waiter.waits
            first.let_go()
    answers = sorted((waiter.answer, duplicate.answer), key=lambda answer: REPLAYED in answer.headers)
    assert answers[0].status_code == 201
    assert_repeated(answers[1], answers[0])
    assert desk.began("x") == 1


def test_one_whose_key_was_taken_over_while_it_waited_for_a_lock_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    desk = Desk({"pay": {**LOCK, "wait": 15, "lease": 0.5}, "long": {**LOCK, "lease": 90}}, store)
    monkeypatch.setattr("flask_idempotent.web.extras.heartbeat.watch", lambda hold: nullcontext())  # it stands still
    with desk.at_work("long", "k-1", account="a") as first, desk.sent("pay", "k-2", account="a") as one:
        until(lambda: len(list(store.scan())) == 3)
        time.sleep(0.1)
        clock.advance(0.5)
        with desk.sent("pay", "k-2", account="a") as other:
            until(lambda: any(record.taken for key in store.scan() if (record := store.get(key))))
            first.let_go()
    assert other.answer.status_code == 201
    assert_refused(one.answer, "in_progress")
    assert one.answer.headers["Retry-After"] == "1"
    assert desk.began("x") == 1
    assert desk.send("pay", "k-3", account="a").status_code == 201


class Watched(MemoryStore):
    """Does something right after a key was given back."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Any = None

    def settle(self, claim: Any, **options: Any) -> bool:
        settled = super().settle(claim, **options)
        if claim.record.fingerprint and options["state"] is State.ISSUED and (then := self.then):
            self.then = None
            then()
        return settled


@pytest.mark.case("FAIL-06", "S21")
@pytest.mark.parametrize("ending", ["failure", "rejection", "exception", "restored", "too soon"])
def test_when_a_key_is_given_back_its_lock_and_interval_are_free_already(ending: str) -> None:
    store, again = Watched(), []
    desk = Desk({"pay": {**LOCK, "interval": 60}, "lock": LOCK}, store)
    if ending == "too soon":
        assert desk.send("pay", "k-0", account="a").status_code == 201
    desk.steps["x"] = lambda: ENDINGS[ending][0]() if store.then else done()
    store.then = lambda: again.append(desk.send("lock" if ending == "too soon" else "pay", "k-1", account="a"))

    assert desk.send("pay", "k-1", account="a").status_code != 201
    assert again[0].status_code == 201


# -- crowds --------------------------------------------------------------------------------------------------------


def test_many_threads_on_one_entity_never_overlap(any_store: Any) -> None:
    desk = Desk({"pay": {**LOCK, "wait": 15}, "ask": LOCK}, any_store)
    answers, barrier = Ledger(), threading.Barrier(12)
    desk.steps["x"] = lambda: (time.sleep(0.003), done())[1]

    def come(number: int) -> None:
        barrier.wait(10)
        for turn in range(3):
            path = "pay" if number % 3 else "ask"
            answer = desk.send(path, f"k-{number}-{turn}", account="a")
            answers.add(f"{path} {answer.status_code} {(answer.get_json() or {}).get('code')}")

    threads = [threading.Thread(target=come, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert overlaps(desk.ledger.entries) == []
    assert answers.entries.count("pay 201 None") == 24
    assert set(answers.entries) <= {"pay 201 None", "ask 201 None", "ask 409 locked"}
