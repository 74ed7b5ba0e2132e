"""The guard: a store's answers in words, re-sent commands, and what an owner may say about its work."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from flask_idempotent.core.breaker import Breaker
from flask_idempotent.core.errors import (
    Duplicate,
    Failed,
    IdempotencyError,
    InProgress,
    KeyReused,
    RecordInvalid,
    StoreUnavailable,
    TokenForeign,
    TokenReused,
    TokenUnknown,
)
from flask_idempotent.core.events import LEVELS, Event
from flask_idempotent.core.guard import Guard
from flask_idempotent.core.hold import Hold, Terms
from flask_idempotent.core.keys import store_key
from flask_idempotent.core.record import Absent, Claim, Holder, Record, State, Verdict
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock

DIGEST = "d" * 24
KEY = store_key("idempotency", DIGEST)


def terms(**changes: Any) -> Terms:
    return Terms(**{"digest": DIGEST, "token": True, "lease": 10, "life": 100, "ttl": 50, "scene": "s", **changes})


class Line(MemoryStore):
    """A memory store at the end of a line that can be broken: before a command arrives, or before its reply does."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock=clock)
        self.asked: list[str] = []
        self.lost_commands = 0
        self.lost_replies = 0
        self.seconds_lost = 0.0
        self.wait: Callable[[float], None] = lambda seconds: None

    def _pass(self, name: str, call: Callable[[], Any]) -> Any:
        self.asked.append(name)
        if self.lost_commands:
            self.lost_commands -= 1
            self._break()
        answer = call()
        if self.lost_replies:
            self.lost_replies -= 1
            self._break()
        return answer

    def _break(self) -> None:
        self.wait(self.seconds_lost)
        raise StoreUnavailable from ConnectionResetError("cut")

    def issue(self, key: str, **options: Any) -> None:
        self._pass("issue", lambda: super(Line, self).issue(key, **options))

    def claim(self, key: str, **options: Any) -> Any:
        return self._pass("claim", lambda: super(Line, self).claim(key, **options))

    def settle(self, claim: Claim, **options: Any) -> bool:
        return self._pass("settle", lambda: super(Line, self).settle(claim, **options))


class Bench:
    """A guard on a line, with everything that it told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.store = Line(self.clock)
        self.events: list[Event] = []
        self.guard = Guard(self.store, listener=self.events.append)
        self.slept: list[float] = []
        self.time = FakeClock()  # of the process, as the guard sees it
        self.store.wait = self.time.advance
        own_time = SimpleNamespace(monotonic=self.time, sleep=self._sleep)
        monkeypatch.setattr("flask_idempotent.core.guard.time", own_time)
        self.guard._breaker = Breaker(self.time)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time.advance(seconds)

    def issue(self) -> None:
        self.guard.issue(DIGEST, binding="", scene="", ttl=100)

    def claim(self, **changes: Any) -> Hold:
        return self.guard.claim(terms(**changes))

    @property
    def told(self) -> list[str]:
        return [event.name for event in self.events]

    @property
    def record(self) -> Record:
        found = self.store.get(KEY)
        assert found is not None
        return found


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


# -- words ---------------------------------------------------------------------------------------------------------


class Scripted(MemoryStore):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def claim(self, key: str, **options: Any) -> Any:
        return self.answer


def holder(verdict: Verdict, **fields: Any) -> Holder:
    return Holder(Record(State.DONE, **fields), verdict, 0)


@pytest.mark.case("S4", "S22")
@pytest.mark.parametrize(
    ("answer", "token", "error", "event"),
    [
        (Absent(), True, TokenUnknown, "refused"),
        (Holder(None, Verdict.DAMAGED, 0), True, RecordInvalid, "record_invalid"),
        (holder(Verdict.DAMAGED), True, RecordInvalid, "record_invalid"),
        (Holder(None, Verdict.DONE, 0), True, RecordInvalid, "record_invalid"),
        (holder(Verdict.FOREIGN), True, TokenForeign, "refused"),
        (holder(Verdict.REUSED), True, TokenReused, "refused"),
        (holder(Verdict.REUSED), False, KeyReused, "refused"),
        (holder(Verdict.RUNNING), True, InProgress, "duplicate"),
        (holder(Verdict.FAILED), True, Failed, "refused"),
        (holder(Verdict.DONE), True, Duplicate, "duplicate"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_answer_of_a_store_has_its_own_refusal_and_event(
    caplog: pytest.LogCaptureFixture, answer: Any, token: bool, error: type[IdempotencyError], event: str
) -> None:
    caplog.set_level(logging.DEBUG, "flask_idempotent")
    events: list[Event] = []
    guard = Guard(Scripted(answer), listener=events.append)

    with pytest.raises(error) as raised:
        guard.claim(terms(token=token, description="in words"))

    assert type(raised.value) is error
    assert events == [Event(event, DIGEST, "s", "in words", error.reason)]
    assert [(r.levelno, r.getMessage().split()[0]) for r in caplog.records] == [(LEVELS[event], event)]


@pytest.mark.parametrize(
    ("left", "hint"), [(0, 1), (1, 1), (999_999, 1), (1_000_001, 2), (2_000_000, 2), (300_000_000, 2), (-5, 1)]
)
def test_the_hint_to_come_back_is_whole_seconds_from_one_to_two(left: int, hint: int) -> None:
    answer = Holder(Record(State.RUNNING, held_until=10**12 + left), Verdict.RUNNING, 10**12)

    with pytest.raises(InProgress) as raised:
        Guard(Scripted(answer)).claim(terms())

    assert raised.value.retry_after == hint
    assert raised.value.seconds_left == max(0, left) / 1_000_000
    assert raised.value.state is State.RUNNING


def test_a_duplicate_of_what_is_done_carries_its_result(bench: Bench) -> None:
    bench.issue()
    bench.claim().complete(b"result")

    with pytest.raises(Duplicate) as raised:
        bench.claim()

    assert raised.value.replay() == b"result"
    assert (raised.value.state, raised.value.seconds_left) == (State.DONE, 0)


def test_records_lie_under_the_prefix() -> None:
    store = MemoryStore()
    for prefix in ("one", "two"):
        Guard(store, prefix=prefix).issue(DIGEST, binding="", scene="", ttl=10)

    assert sorted(store.scan()) == [f"one:{DIGEST}", f"two:{DIGEST}"]
    Guard(store, prefix="one").claim(terms()).complete()
    assert Guard(store, prefix="two").claim(terms()).fence > 0


# -- what an owner says --------------------------------------------------------------------------------------------


@pytest.mark.case("S4", "S5")
def test_complete_keeps_the_result_and_counts_once(bench: Bench) -> None:
    bench.issue()
    hold = bench.claim()

    hold.complete(b"result")
    hold.complete(b"other")
    hold.restore()
    hold.fail()
    hold.keep()
    hold.release()

    assert (bench.record.state, bench.record.result) == (State.DONE, b"result")
    assert bench.store.asked == ["issue", "claim", "settle"]
    assert bench.told == ["issued", "claimed", "completed"]


@pytest.mark.case("S5")
def test_restore_makes_the_token_good_again(bench: Bench) -> None:
    bench.issue()
    first = bench.claim(fingerprint="one")

    first.restore()
    second = bench.claim(fingerprint="two")

    assert second.fence > first.fence
    assert second.owner != first.owner
    first.complete(b"late")  # settled once: nothing is sent
    assert bench.record.state is State.RUNNING
    assert bench.told == ["issued", "claimed", "restored", "claimed"]


@pytest.mark.case("S14")
def test_fail_leaves_it_to_people(bench: Bench) -> None:
    bench.issue()
    bench.claim(restore=False).fail()

    with pytest.raises(Failed):
        bench.claim(restore=False)
    assert bench.told == ["issued", "claimed", "kept_failed", "refused"]


@pytest.mark.case("FAIL-04")
@pytest.mark.parametrize("ending", ["restore", "fail", "complete"])
def test_after_keep_every_ending_is_done(bench: Bench, ending: str) -> None:
    bench.issue()
    hold = bench.claim()

    hold.keep()
    assert bench.record.state is State.DONE  # at once: it survives a crash
    hold.keep()
    getattr(hold, ending)()

    assert (bench.record.state, bench.record.result) == (State.DONE, None)
    assert bench.store.asked == ["issue", "claim", "settle"]


@pytest.mark.case("FAIL-04")
def test_after_keep_the_result_may_still_be_added(bench: Bench) -> None:
    bench.issue()
    hold = bench.claim()

    hold.keep()
    hold.complete(b"result")

    assert (bench.record.state, bench.record.result) == (State.DONE, b"result")


@pytest.mark.case("S4")
@pytest.mark.parametrize(
    ("ending", "state", "asked"),
    [
        ("complete", State.DONE, []),
        ("keep", State.DONE, []),
        ("restore", State.ISSUED, ["settle"]),
        ("fail", State.FAILED, ["settle"]),
    ],
)
def test_what_was_consumed_costs_a_second_trip_only_when_it_fails(
    bench: Bench, ending: str, state: State, asked: list[str]
) -> None:
    bench.issue()
    hold = bench.claim(consume=True)

    getattr(hold, ending)()

    assert bench.record.state is state
    assert bench.store.asked == ["issue", "claim", *asked]


@pytest.mark.case("FAIL-03", "S4")
@pytest.mark.parametrize("ending", ["complete", "restore", "fail", "keep", "extend"])
def test_an_owner_whose_lease_was_taken_over_can_do_nothing(bench: Bench, ending: str) -> None:
    bench.issue()
    late = bench.claim()
    bench.clock.advance(10)
    owner = bench.claim()
    before = bench.record

    getattr(late, ending)()

    assert bench.record == before
    assert bench.told == ["issued", "claimed", "taken_over", "claim_lost"]
    owner.complete(b"mine")
    assert bench.record.result == b"mine"


@pytest.mark.case("FAIL-03")
def test_extend_holds_the_claim_for_another_lease(bench: Bench) -> None:
    bench.issue()
    hold = bench.claim()

    for _ in range(5):
        bench.clock.advance(9)
        assert hold.extend()
        with pytest.raises(InProgress):
            bench.claim()
    bench.clock.advance(10)

    assert bench.claim().fence > hold.fence
    assert not hold.extend()


@pytest.mark.parametrize("ending", ["complete", "restore", "fail", "keep"])
def test_to_extend_what_is_settled_asks_nobody(bench: Bench, ending: str) -> None:
    bench.issue()
    hold = bench.claim()
    getattr(hold, ending)()
    asked = list(bench.store.asked)

    assert hold.extend()

    assert bench.store.asked == asked


@pytest.mark.case("S4", "FAIL-05")
@pytest.mark.parametrize("ending", ["complete", "restore", "fail", "keep"])
@pytest.mark.parametrize("late", ["extend", "restore", "fail", "complete without a result", "complete with another"])
def test_a_command_of_its_own_that_comes_late_does_not_undo_what_was_settled(
    bench: Bench, ending: str, late: str
) -> None:
    if (ending, late) == ("keep", "complete with another"):
        late = "complete without a result"  # to a kept one the result may still be added
    bench.issue()
    hold = bench.claim()
    hold.complete(b"result") if ending == "complete" else getattr(hold, ending)()
    before = bench.record

    if late == "extend":  # by a heartbeat that was on its way
        bench.guard.extend(hold)
    else:
        state = {"restore": State.ISSUED, "fail": State.FAILED}.get(late, State.DONE)
        bench.guard.settle(hold, state, b"other" if late == "complete with another" else None)

    assert bench.record == before


# -- lost commands and replies -------------------------------------------------------------------------------------


@pytest.mark.case("RACE-01", "S4")
@pytest.mark.parametrize("loss", ["lost_commands", "lost_replies"])
def test_a_claim_whose_reply_was_lost_is_sent_again_and_is_no_duplicate(bench: Bench, loss: str) -> None:
    bench.issue()
    setattr(bench.store, loss, 1)

    hold = bench.claim()

    assert hold.claim is not None
    assert bench.record.owner == hold.owner
    assert bench.store.asked == ["issue", "claim", "claim"]
    assert bench.told == ["issued", "claimed"]
    with pytest.raises(InProgress):
        bench.claim()


@pytest.mark.case("RACE-01")
def test_a_takeover_whose_reply_was_lost_is_told_when_the_claim_is_known_again(bench: Bench) -> None:
    bench.issue()
    bench.claim()
    bench.clock.advance(10)
    bench.store.lost_replies = 1

    assert bench.claim().fence == bench.record.fence

    assert bench.store.asked == ["issue", "claim", "claim", "claim"]
    assert bench.told == ["issued", "claimed", "taken_over"]


@pytest.mark.case("REDIS-04")
def test_a_takeover_whose_replies_were_lost_is_told_when_it_is_given_back_and_who_lost_its_claim_is_told(
    bench: Bench,
) -> None:
    bench.issue()
    first = bench.claim()
    bench.clock.advance(10)
    bench.store.lost_replies = 2
    with pytest.raises(StoreUnavailable) as raised:
        bench.claim()
    raised.value.lost.release()
    assert bench.record.state is State.ISSUED

    first.complete()

    assert bench.told == ["issued", "claimed", "store_unavailable", "taken_over", "claim_lost"]


@pytest.mark.case("REDIS-04", "S4")
def test_a_claim_is_sent_again_once_only_and_is_remembered_as_lost(bench: Bench) -> None:
    bench.issue()
    bench.store.lost_replies = 2

    with pytest.raises(StoreUnavailable) as raised:
        bench.claim()

    assert bench.store.asked == ["issue", "claim", "claim"]
    assert raised.value.retry_after == 1
    assert bench.told == ["issued", "store_unavailable"]
    assert "ConnectionResetError: cut" in bench.events[-1].reason
    raised.value.lost.release()
    assert bench.record.state is State.ISSUED
    assert bench.claim().fence > 0


@pytest.mark.case("REDIS-04")
@pytest.mark.parametrize(("seconds", "tries"), [(0.4, 2), (0.5, 2), (0.6, 1), (5, 1)])
def test_a_claim_is_sent_again_only_inside_the_time_budget(bench: Bench, seconds: float, tries: int) -> None:
    bench.issue()
    bench.store.lost_commands = 5
    bench.store.seconds_lost = seconds

    with pytest.raises(StoreUnavailable):
        bench.claim()

    assert bench.store.asked == ["issue"] + ["claim"] * tries
    assert bench.time() - FakeClock()() == pytest.approx(tries * seconds)


@pytest.mark.case("REDIS-04", "REDIS-06")
def test_a_lost_claim_that_cannot_be_released_yet_is_released_when_the_store_answers_again(bench: Bench) -> None:
    bench.issue()
    bench.store.lost_replies = 2
    with pytest.raises(StoreUnavailable) as raised:
        bench.claim()
    bench.store.lost_commands = 1
    raised.value.lost.release()  # the store is away for this, too
    assert bench.record.state is State.RUNNING

    bench.guard.issue("e" * 24, binding="", scene="", ttl=100)  # anything that the store answers

    assert bench.record.state is State.ISSUED
    assert bench.claim().fence > 0


@pytest.mark.case("REDIS-04", "S4")
def test_a_lost_claim_is_not_released_under_somebody_else(bench: Bench) -> None:
    bench.issue()
    bench.store.lost_commands = 2
    with pytest.raises(StoreUnavailable) as raised:
        bench.claim()
    owner = bench.claim()

    raised.value.lost.release()

    assert (bench.record.state, bench.record.owner) == (State.RUNNING, owner.owner)
    assert "claim_lost" not in bench.told


@pytest.mark.case("REDIS-04", "S4")
@pytest.mark.parametrize("loss", ["lost_commands", "lost_replies"])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("ending", "state"), [("complete", State.DONE), ("restore", State.ISSUED), ("fail", State.FAILED)]
)
def test_to_settle_is_sent_again_within_the_budget(
    bench: Bench, loss: str, times: int, ending: str, state: State
) -> None:
    bench.issue()
    hold = bench.claim()
    setattr(bench.store, loss, times)

    getattr(hold, ending)()

    assert bench.record.state is state
    assert "settle_failed" not in bench.told
    assert "claim_lost" not in bench.told
    assert sum(bench.slept) < 1


@pytest.mark.case("REDIS-04", "S23")
@pytest.mark.parametrize("ending", ["complete", "restore", "fail", "keep"])
@pytest.mark.parametrize("seconds", [0.0, 0.4])
def test_when_settling_fails_for_good_it_is_one_error_and_raises_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture, ending: str, seconds: float
) -> None:
    bench.issue()
    hold = bench.claim()
    started = bench.time()
    bench.store.lost_commands = 99
    bench.store.seconds_lost = seconds

    getattr(hold, ending)()

    assert bench.record.state is State.RUNNING
    assert bench.told == ["issued", "claimed", "settle_failed"]
    assert [r.getMessage().split()[0] for r in caplog.records if r.levelno >= logging.ERROR] == ["settle_failed"]
    assert "ConnectionResetError: cut" in caplog.text
    assert bench.store.asked.count("settle") > 1
    assert bench.time() - started < 1


@pytest.mark.case("REDIS-04", "REDIS-06")
@pytest.mark.parametrize(
    ("ending", "state"),
    [("complete", State.DONE), ("keep", State.DONE), ("restore", State.ISSUED), ("fail", State.FAILED)],
)
def test_what_the_store_could_not_be_told_it_is_told_once_it_answers_again(
    bench: Bench, ending: str, state: State
) -> None:
    bench.issue()
    hold = bench.claim()
    bench.store.lost_commands = 99
    getattr(hold, ending)()
    bench.store.lost_commands = 0
    assert bench.record.state is State.RUNNING

    bench.guard.issue("e" * 24, binding="", scene="", ttl=100)  # anything that the store answers

    assert bench.record.state is state  # else its lease ends, and a retry runs what was done
    bench.clock.advance(11)
    if state is not State.ISSUED:
        with pytest.raises((Duplicate, Failed)):
            bench.claim()


@pytest.mark.case("REDIS-04", "S4")
def test_what_the_store_hears_late_does_not_undo_a_takeover(bench: Bench) -> None:
    bench.issue()
    late = bench.claim()
    bench.store.lost_commands = 99
    late.complete()
    bench.store.lost_commands = 0
    bench.clock.advance(11)

    owner = bench.claim()
    bench.guard.issue("e" * 24, binding="", scene="", ttl=100)

    assert (bench.record.state, bench.record.owner) == (State.RUNNING, owner.owner)


@pytest.mark.case("REDIS-04")
def test_what_succeeded_is_settled_even_while_the_breaker_is_open(bench: Bench) -> None:
    bench.issue()
    hold = bench.claim()
    bench.store.lost_commands, bench.store.seconds_lost = 1, 3
    with pytest.raises(StoreUnavailable):
        bench.guard.issue("e" * 24, binding="", scene="", ttl=100)
    with pytest.raises(StoreUnavailable):  # open
        bench.guard.issue("f" * 24, binding="", scene="", ttl=100)
    assert bench.store.asked.count("issue") == 2

    hold.complete(b"result")

    assert bench.record.result == b"result"


@pytest.mark.case("REDIS-09", "S4")
@pytest.mark.parametrize(("ending", "written"), [("complete", True), ("fail", True), ("restore", False)])
def test_an_owner_whose_record_vanished_writes_only_what_happened(bench: Bench, ending: str, written: bool) -> None:
    bench.issue()
    hold = bench.claim()
    bench.store.delete(KEY)

    getattr(hold, ending)()

    assert (bench.store.get(KEY) is not None) is written
    assert "claim_lost" not in bench.told


@pytest.mark.case("S23")
def test_a_listener_and_the_log_hear_the_same(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "flask_idempotent")
    bench.issue()
    bench.claim(description="an order").complete()

    lines = [r.getMessage() for r in caplog.records]

    assert [line.split()[0] for line in lines] == bench.told == ["issued", "claimed", "completed"]
    assert all(f"digest={DIGEST}" in line for line in lines)
    assert all("description=an order" in line for line in lines[1:])
