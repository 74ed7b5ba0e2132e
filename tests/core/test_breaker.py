"""The breaker: nobody queues up behind a store that lets each of its callers wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from flask_idempotent.core.breaker import LONGEST, SHORTEST, SLOW, Breaker
from flask_idempotent.core.errors import RecordInvalid, StoreUnavailable
from flask_idempotent.testing import FakeClock


class Patient:
    """A store that fails after so many seconds, or answers."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.seconds: float | None = None
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.seconds is None:
            return "answer"
        self.clock.advance(self.seconds)
        raise StoreUnavailable


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> Breaker:
    return Breaker(clock)


@pytest.fixture
def store(clock: FakeClock) -> Patient:
    return Patient(clock)


def fails(call: Callable[[], Any]) -> None:
    with pytest.raises(StoreUnavailable):
        call()


def test_a_store_that_answers_is_asked_every_time(breaker: Breaker, store: Patient) -> None:
    assert [breaker.call(store) for _ in range(3)] == ["answer"] * 3
    assert store.asked == 3


def test_a_failure_that_costs_no_time_is_tried_again_by_everyone(breaker: Breaker, store: Patient) -> None:
    store.seconds = SLOW / 2
    for _ in range(5):
        fails(lambda: breaker.call(store))
    assert store.asked == 5
    store.seconds = None
    assert breaker.call(store) == "answer"


@pytest.mark.parametrize(
    ("took", "pause"), [(SLOW + 0.01, SHORTEST), (0.4, SHORTEST), (2.0, 4.0), (4.5, 9.0), (60.0, LONGEST)]
)
def test_after_a_slow_failure_nobody_asks_for_twice_the_time_that_it_took(
    breaker: Breaker, store: Patient, clock: FakeClock, took: float, pause: float
) -> None:
    store.seconds = took
    fails(lambda: breaker.call(store))
    store.seconds = None

    clock.advance(pause - 0.001)
    fails(lambda: breaker.call(store))
    assert store.asked == 1
    clock.advance(0.002)
    assert breaker.call(store) == "answer"
    assert breaker.call(store) == "answer"
    assert store.asked == 3


def test_when_the_pause_is_over_one_tries_and_the_others_are_refused_meanwhile(
    breaker: Breaker, store: Patient, clock: FakeClock
) -> None:
    store.seconds = 1.0
    fails(lambda: breaker.call(store))
    clock.advance(2.0)
    refused: list[bool] = []

    def while_one_tries() -> str:
        for _ in range(3):
            fails(lambda: breaker.call(store))
            refused.append(True)
        return "tried"

    assert breaker.call(while_one_tries) == "tried"
    assert (len(refused), store.asked) == (3, 1)
    store.seconds = None
    assert breaker.call(store) == "answer"  # closed again


def test_a_try_that_fails_opens_it_again(breaker: Breaker, store: Patient, clock: FakeClock) -> None:
    store.seconds = 1.0
    for _ in range(3):
        fails(lambda: breaker.call(store))
        fails(lambda: breaker.call(store))
        clock.advance(2.0)
    assert store.asked == 3


def test_whoever_has_to_ask_asks_while_it_is_open_and_closes_it(breaker: Breaker, store: Patient) -> None:
    store.seconds = 1.0
    fails(lambda: breaker.call(store))
    store.seconds = None

    assert breaker.watch(store) == "answer"

    assert breaker.call(store) == "answer"


def test_other_errors_pass_and_do_not_open_it(breaker: Breaker, store: Patient, clock: FakeClock) -> None:
    def damaged() -> str:
        clock.advance(5)
        raise RecordInvalid

    for _ in range(2):
        with pytest.raises(RecordInvalid):
            breaker.call(damaged)
    assert breaker.call(store) == "answer"


def test_of_many_threads_one_tries_at_a_time(breaker: Breaker, store: Patient, clock: FakeClock) -> None:
    store.seconds = 1.0
    fails(lambda: breaker.call(store))
    clock.advance(2.0)
    inside, leave, outcomes = threading.Event(), threading.Event(), []

    def slow() -> str:
        inside.set()
        assert leave.wait(30)
        return "answer"

    def caller() -> None:
        try:
            outcomes.append(breaker.call(slow))
        except StoreUnavailable:
            outcomes.append("refused")

    threads = [threading.Thread(target=caller) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert inside.wait(10)
    while len(outcomes) < 19:
        threads[0].join(0.001)
    leave.set()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["answer"] + ["refused"] * 19


def test_a_failure_is_slow_from_a_fifth_of_a_second_on() -> None:
    moments = iter([0.0, SLOW, SLOW, SLOW + SHORTEST / 2])  # begun, failed, until when, asked again
    breaker = Breaker(lambda: next(moments))

    def failing() -> None:
        raise StoreUnavailable("cut")

    with pytest.raises(StoreUnavailable, match=r"^cut$"):
        breaker.call(failing)
    with pytest.raises(StoreUnavailable) as refused:
        breaker.call(failing)

    assert str(refused.value) == "The store did not answer a moment ago; it is not asked again yet."
