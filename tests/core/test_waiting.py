"""A claim that waits for another one: when it looks, what it finds, and that it always stops in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flask_idempotent.core.errors import (
    Duplicate,
    Failed,
    IdempotencyError,
    InProgress,
    KeyReused,
    Locked,
    RecordInvalid,
    StoreUnavailable,
    TokenForeign,
)
from flask_idempotent.core.hold import Hold
from flask_idempotent.core.record import Absent, Holder, Record, State, Verdict
from tests.core.test_guard import Bench, terms

pytestmark = pytest.mark.case("RACE-06")

SLACK = 0.001  # seconds: the bench counts in floats


class Queue(Bench):
    """The store's clock goes with the process's, and something may happen while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.meanwhile: Callable[[int], Any] = lambda number: None
        self.seconds_an_ask = 0.0
        self.started = self.time()
        self.guard.store.wait = self.pass_time  # type: ignore[attr-defined]

    def pass_time(self, seconds: float) -> None:
        self.time.advance(seconds)
        self.clock.advance(seconds)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_time(seconds)
        self.meanwhile(len(self.slept))

    def come(self, wait: float, **changes: Any) -> Hold:
        self.store.asked.clear()
        self.slept.clear()
        self.started = self.time()
        return self.guard.claim(key_terms(**changes), wait=wait)

    @property
    def seconds(self) -> float:
        return self.time() - self.started


def key_terms(**changes: Any) -> Any:
    return terms(**{"token": False, "fingerprint": "f", **changes})


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(monkeypatch)


# -- it looks before it sleeps -------------------------------------------------------------------------------------


def test_what_is_free_or_done_makes_nobody_wait(queue: Queue) -> None:
    first = queue.come(10)
    first.complete(b"answer")
    assert (queue.slept, queue.store.asked) == ([], ["claim", "settle"])
    with pytest.raises(Duplicate) as refusal:
        queue.come(10)
    assert refusal.value.replay() == b"answer"
    assert (queue.slept, queue.store.asked) == ([], ["claim"])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Holder(Record(State.RUNNING), Verdict.REUSED, 0), KeyReused),
        (Holder(Record(State.RUNNING), Verdict.FOREIGN, 0), TokenForeign),
        (Holder(Record(State.FAILED), Verdict.FAILED, 0), Failed),
        (Holder(Record(State.DONE), Verdict.DONE, 0), Duplicate),
        (Holder(None, Verdict.DAMAGED, 0), RecordInvalid),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_nobody_waits_for_what_does_not_change(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, answer: Any, error: type[IdempotencyError]
) -> None:
    monkeypatch.setattr(queue.store, "claim", lambda key, **options: answer)
    with pytest.raises(error):
        queue.come(10)
    assert queue.slept == []


@pytest.mark.case("RACE-04")
def test_other_content_is_refused_at_once_also_when_it_comes_up_meanwhile(queue: Queue) -> None:
    first = queue.come(0)
    with pytest.raises(KeyReused):
        queue.come(10, fingerprint="g")
    assert queue.slept == []

    def change_hands(number: int) -> None:
        if number == 2:
            first.restore()
            queue.guard.claim(key_terms(fingerprint="g"))

    queue.meanwhile = change_hands
    with pytest.raises(KeyReused):
        queue.come(10)
    assert len(queue.slept) == 2


# -- what it finds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 4])
def test_a_waiter_gets_the_result_soon_after_it_is_there(queue: Queue, number: int) -> None:
    first = queue.come(0)
    queue.meanwhile = lambda n: first.complete(b"answer") if n == number else None
    with pytest.raises(Duplicate) as refusal:
        queue.come(10)
    assert refusal.value.replay() == b"answer"
    assert len(queue.slept) == number


@pytest.mark.parametrize("token", [True, False])
def test_a_waiter_takes_over_what_was_released(queue: Queue, token: bool) -> None:
    if token:
        queue.issue()
    first = queue.come(0, token=token)
    queue.meanwhile = lambda n: first.restore() if n == 3 else None
    second = queue.come(10, token=token)
    assert len(queue.slept) == 3
    assert second.fence > first.fence
    assert queue.record.owner == second.owner
    assert queue.told[-2:] == ["restored", "claimed"]


@pytest.fixture(params=[0.5, 1.0, 1.5])
def jitter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is no chance: what a pause is multiplied by."""
    monkeypatch.setattr("flask_idempotent.core.guard.random.uniform", lambda low, high: request.param)


@pytest.mark.usefixtures("jitter")
def test_a_waiter_takes_over_when_a_lease_ends_and_not_later(queue: Queue) -> None:
    queue.come(0, lease=1)
    queue.come(10, lease=1)
    assert 1 - SLACK <= queue.seconds < 1.021
    assert queue.told[-1] == "taken_over"


@pytest.mark.usefixtures("jitter")
def test_with_restore_off_a_waiter_is_told_when_a_lease_ends(queue: Queue) -> None:
    queue.come(0, lease=1, restore=False)
    with pytest.raises(Failed):
        queue.come(10, lease=1)
    assert 1 - SLACK <= queue.seconds < 1.021


def test_a_token_whose_life_ends_meanwhile_is_absent(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.come(0)
    queue.meanwhile = lambda n: monkeypatch.setattr(queue.store, "claim", lambda key, **options: Absent())
    with pytest.raises(IdempotencyError) as refusal:
        queue.come(10)
    assert refusal.value.reason == "token_unknown"
    assert len(queue.slept) == 1


def test_a_lock_is_waited_for_too(queue: Queue) -> None:
    first = queue.come(0, kind="lock", fingerprint="")
    with pytest.raises(Locked):
        queue.come(0.3, kind="lock", fingerprint="", scene="other")
    assert queue.seconds == pytest.approx(0.3)
    queue.meanwhile = lambda n: first.restore()
    queue.come(10, kind="lock", fingerprint="", scene="other")
    assert len(queue.slept) == 1


# -- it stops ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [0.0, -1.0])
def test_without_a_limit_there_is_no_waiting(queue: Queue, wait: float) -> None:
    queue.come(0)
    with pytest.raises(InProgress):
        queue.come(wait)
    assert (queue.slept, queue.store.asked) == ([], ["claim"])


@pytest.mark.parametrize("wait", [0.001, 0.02, 0.3, 5, 100])
def test_the_last_look_is_at_the_limit(queue: Queue, wait: float) -> None:
    queue.come(0, lease=1000)
    with pytest.raises(InProgress):
        queue.come(wait)
    assert queue.seconds == pytest.approx(wait)
    assert len(queue.store.asked) == len(queue.slept) + 1

    first = queue.guard.claim(key_terms(digest="e" * 24, lease=1000))
    queue.meanwhile = lambda n: first.restore() if queue.seconds > wait - SLACK else None
    assert queue.come(wait, digest="e" * 24).claim is not None


def test_waiters_look_often_at_first_then_seldom_and_not_together(queue: Queue) -> None:
    queue.come(0, lease=1000)
    seen = []
    for _ in range(2):
        with pytest.raises(InProgress):
            queue.come(10, lease=1000)
        seen.append(list(queue.slept))
    for slept in seen:
        assert slept[0] <= 0.03
        assert max(slept) <= 0.375
        assert 25 <= len(slept) <= 100
    assert seen[0][:5] != seen[1][:5]


def test_each_pause_is_twice_the_last_one_up_to_a_quarter_of_a_second(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flask_idempotent.core.guard.random.uniform", lambda low, high: (low + high) / 2)
    queue.come(0, lease=1000)
    with pytest.raises(InProgress):
        queue.come(1)
    assert queue.slept == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.25, 0.25, 0.2])


def test_a_key_that_changes_hands_all_the_time_holds_nobody_beyond_the_limit(queue: Queue) -> None:
    hands = [queue.come(0)]

    def change_hands(number: int) -> None:
        hands.pop().restore()
        hands.append(queue.guard.claim(key_terms()))

    queue.meanwhile = change_hands
    with pytest.raises(InProgress):
        queue.come(0.3)
    assert queue.seconds == pytest.approx(0.3)


@pytest.mark.parametrize("seconds", [0.15, 0.45])
def test_a_slow_store_holds_nobody_longer_than_one_more_look(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    queue.come(0, lease=1000)
    claim = queue.store.claim

    def slow(key: str, **options: Any) -> Any:
        queue.pass_time(seconds)
        return claim(key, **options)

    monkeypatch.setattr(queue.store, "claim", slow)
    with pytest.raises(InProgress):
        queue.come(1)
    assert queue.seconds <= 1 + seconds + SLACK


@pytest.mark.parametrize(("costs", "longest"), [(0.0, 0.1), (0.3, 0.7), (0.6, 0.7)])
def test_a_store_that_stands_still_holds_nobody(queue: Queue, costs: float, longest: float) -> None:
    queue.come(0)

    def break_down(number: int) -> None:
        queue.store.lost_commands, queue.store.seconds_lost = 99, costs

    queue.meanwhile = break_down
    with pytest.raises(StoreUnavailable) as refusal:
        queue.come(60)
    assert queue.seconds <= longest
    assert len(queue.slept) == 1
    assert refusal.value.lost is not None


def test_a_reply_that_is_lost_while_it_waits_is_asked_for_again(queue: Queue) -> None:
    first = queue.come(0)

    def release_and_lose(number: int) -> None:
        first.restore()
        queue.store.lost_replies = 1

    queue.meanwhile = release_and_lose
    second = queue.come(10)
    assert queue.record.owner == second.owner
    assert queue.record.state is State.RUNNING
    assert len(queue.slept) == 1
