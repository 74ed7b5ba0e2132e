"""What the guard asks of its store and what it tells, each to the last argument."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from flask_idempotent.core.errors import Duplicate, IdempotencyError, InProgress, StoreUnavailable
from flask_idempotent.core.events import Event
from flask_idempotent.core.guard import Guard
from flask_idempotent.core.hold import Hold, Terms
from flask_idempotent.core.keys import store_key
from flask_idempotent.core.record import Claim, Holder, Record, State, Verdict

DIGEST = "d" * 24
KEY = store_key("p", DIGEST)
TERMS = Terms(
    digest=DIGEST,
    token=True,
    lease=10,
    life=100,
    ttl=50,
    scene="scene",
    binding="binding",
    fingerprint="fingerprint",
    description="description",
    restore=False,
    consume=False,
)
WON = Claim(KEY, Record(State.RUNNING, fence=7, owner="anna"))
DONE = Record(State.DONE, owner="ben", result=b"result")
RUNNING = Record(State.RUNNING, owner="ben", held_until=5_000_000)


class Scripted:
    """A store that answers what it is told to, and writes down what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {"issue": None, "claim": WON, "settle": True, "get": None}

    def _answer(self, name: str, *asked: Any) -> Any:
        self.asked.append((name, *asked))
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def issue(self, key: str, **options: Any) -> None:
        self._answer("issue", key, options)

    def claim(self, key: str, **options: Any) -> Any:
        return self._answer("claim", key, options)

    def settle(self, claim: Claim, **options: Any) -> Any:
        return self._answer("settle", claim, options)

    def get(self, key: str) -> Any:
        return self._answer("get", key)


class Bench:
    def __init__(self) -> None:
        self.store = Scripted()
        self.events: list[Event] = []
        store: Any = self.store
        self.guard = Guard(store, prefix="p", listener=self.events.append)

    def claimed(self, **changes: Any) -> Hold:
        """A hold that was claimed; what was asked and told until then is forgotten."""
        hold = self.guard.claim(TERMS._replace(**changes))
        self.store.asked.clear()
        self.events.clear()
        return hold

    def breaks(self, name: str, text: str = "cut") -> StoreUnavailable:
        error = StoreUnavailable()
        error.__cause__ = ConnectionResetError(text)
        self.store.answers[name] = error
        return error


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    standing = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: None)
    monkeypatch.setattr("flask_idempotent.core.guard.time", standing)
    return Bench()


def event(name: str, reason: str = "") -> Event:
    return Event(name, DIGEST, "scene", "description", reason)


# -- asked ---------------------------------------------------------------------------------------------------------


def test_a_claim_asks_for_all_its_terms(bench: Bench) -> None:
    hold = bench.guard.claim(TERMS)
    asked = {
        "owner": hold.owner,
        "lease": 10,
        "ttl": 100,
        "must_exist": True,
        "binding": "binding",
        "scene": "scene",
        "fingerprint": "fingerprint",
        "takeover": False,
        "consume": False,
    }
    assert bench.store.asked == [("claim", KEY, asked)]


def test_a_token_is_issued_under_its_terms(bench: Bench) -> None:
    bench.guard.issue(DIGEST, binding="binding", scene="scene", ttl=9)
    assert bench.store.asked == [("issue", KEY, {"binding": "binding", "scene": "scene", "ttl": 9})]


@pytest.mark.parametrize(
    ("ending", "state", "result"),
    [
        (lambda hold: hold.complete(b"r"), State.DONE, b"r"),
        (lambda hold: hold.complete(), State.DONE, None),
        (lambda hold: hold.keep(), State.DONE, None),
        (lambda hold: hold.restore(), State.ISSUED, None),
        (lambda hold: hold.fail(), State.FAILED, None),
    ],
    ids=["complete with a result", "complete", "keep", "restore", "fail"],
)
def test_an_ending_settles_the_claim_that_was_won(
    bench: Bench, ending: Callable[[Hold], None], state: State, result: bytes | None
) -> None:
    ending(bench.claimed())
    assert bench.store.asked == [("settle", WON, {"state": state, "hold": 10, "ttl": 50, "result": result})]


def test_to_extend_is_to_run_for_another_lease_and_life(bench: Bench) -> None:
    assert bench.claimed().extend()
    assert bench.store.asked == [("settle", WON, {"state": State.RUNNING, "hold": 10, "ttl": 100})]


def test_an_owner_whose_claim_was_never_confirmed_is_known_by_its_id(bench: Bench) -> None:
    unconfirmed = Claim(KEY, Record(State.RUNNING, owner="anna"))
    for ending in (Hold.complete, Hold.extend, Hold.release):
        hold = Hold(bench.guard, TERMS, "anna")
        hold.sent = True
        ending(hold)
    assert [asked[:2] for asked in bench.store.asked] == [
        ("settle", unconfirmed),
        ("settle", unconfirmed),
        ("get", KEY),
        ("settle", unconfirmed),
    ]
    assert bench.store.asked[-1][2] == {"state": State.ISSUED, "hold": 0, "ttl": 50}


# -- told ----------------------------------------------------------------------------------------------------------


def test_to_issue_tells_whose_token_it_is(bench: Bench) -> None:
    bench.guard.issue(DIGEST, binding="", scene="scene", ttl=9)
    assert bench.events == [Event("issued", DIGEST, "scene", "", "")]


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda bench: bench.guard.claim(TERMS), event("claimed")),
        (lambda bench: bench.claimed().complete(), event("completed")),
        (lambda bench: bench.claimed().keep(), event("completed")),
        (lambda bench: bench.claimed().restore(), event("restored")),
        (lambda bench: bench.claimed().fail(), event("kept_failed")),
    ],
    ids=["claim", "complete", "keep", "restore", "fail"],
)
def test_every_step_tells_whose_it_was(bench: Bench, act: Callable[[Bench], Any], told: Event) -> None:
    act(bench)
    assert bench.events == [told]


@pytest.mark.parametrize("step", [Hold.complete, Hold.keep, Hold.restore, Hold.fail, Hold.extend])
def test_a_lost_claim_is_told_once_with_its_reason(bench: Bench, step: Callable[[Hold], Any]) -> None:
    hold = bench.claimed()
    bench.store.answers["settle"] = False
    step(hold)
    hold.complete()
    assert bench.events == [event("claim_lost", "its lease was over and another owner has it, or the store lost it")]


@pytest.mark.parametrize("step", [Hold.complete, Hold.keep, Hold.restore, Hold.fail])
def test_what_could_not_be_settled_is_told_with_the_drivers_words(bench: Bench, step: Callable[[Hold], Any]) -> None:
    hold = bench.claimed()
    bench.breaks("settle")
    step(hold)
    assert bench.events == [event("settle_failed", "ConnectionResetError: cut")]


def test_a_claim_that_nobody_answers_is_told_with_the_drivers_words(bench: Bench) -> None:
    broken = bench.breaks("claim")
    with pytest.raises(StoreUnavailable) as raised:
        bench.guard.claim(TERMS)
    assert raised.value is broken
    assert raised.value.retry_after == 1
    assert bench.events == [event("store_unavailable", "ConnectionResetError: cut")]


@pytest.mark.parametrize("odd", [False, True])
def test_a_token_that_cannot_be_recorded_is_told_with_the_drivers_words(bench: Bench, odd: bool) -> None:
    """Also where a store of the app's own errs in a way of its own."""
    broken = bench.breaks("issue")
    cause = ConnectionResetError("cut")
    if odd:
        bench.store.answers["issue"] = cause
    with pytest.raises(StoreUnavailable) as raised:
        bench.guard.issue(DIGEST, binding="", scene="scene", ttl=9)
    assert raised.value.__cause__ is (cause if odd else broken.__cause__)
    assert (raised.value is broken) is not odd
    assert raised.value.retry_after == 1
    assert bench.events == [Event("store_unavailable", DIGEST, "scene", "", "ConnectionResetError: cut")]


@pytest.mark.parametrize(
    ("verdict", "record", "error", "state"),
    [(Verdict.DONE, DONE, Duplicate, State.DONE), (Verdict.RUNNING, RUNNING, InProgress, State.RUNNING)],
)
def test_a_duplicate_shows_the_record(
    bench: Bench, verdict: Verdict, record: Record, error: type[IdempotencyError], state: State
) -> None:
    bench.store.answers["claim"] = Holder(record, verdict, 4_000_000)
    with pytest.raises(error) as raised:
        bench.guard.claim(TERMS)
    refusal: Any = raised.value
    assert refusal.record is record
    assert (refusal.state, refusal.seconds_left) == (state, 1 if state is State.RUNNING else 0)
    assert bench.events == [event("duplicate", refusal.reason)]


# -- what a hold knows ---------------------------------------------------------------------------------------------


def test_a_new_hold_has_happened_to_nobody(bench: Bench) -> None:
    hold = Hold(bench.guard, TERMS, "anna")
    assert (hold.claim, hold.fence) == (None, 0)
    assert (hold.sent, hold.kept, hold.given_back, hold.settled) == (False, False, False, False)


@pytest.mark.parametrize("ending", [Hold.complete, Hold.restore, Hold.fail, Hold.release])
@pytest.mark.parametrize("consume", [False, True])
def test_an_ending_is_the_last(bench: Bench, consume: bool, ending: Callable[[Hold], None]) -> None:
    hold = bench.claimed(consume=consume)
    ending(hold)
    assert hold.settled is True
    asked = list(bench.store.asked)
    for late in (Hold.complete, Hold.keep, Hold.restore, Hold.fail, Hold.release, Hold.extend):
        late(hold)
    assert bench.store.asked == asked


@pytest.mark.parametrize("result", [None, b"", b"r"])
def test_what_was_consumed_is_complete_without_a_word(bench: Bench, result: bytes | None) -> None:
    hold = bench.claimed(consume=True)
    hold.complete(result)
    assert (hold.settled, bench.store.asked, bench.events) == (True, [], [])


def test_what_could_not_be_kept_is_written_at_the_end(bench: Bench) -> None:
    hold = bench.claimed()
    bench.breaks("settle")
    hold.keep()
    bench.store.answers["settle"] = True
    bench.store.asked.clear()
    hold.restore()
    assert [asked[2]["state"] for asked in bench.store.asked] == [State.DONE]


# -- what is owed, and how long it is tried --------------------------------------------------------------------------


def test_to_settle_is_tried_to_the_last_moment_of_half_a_second(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = bench.claimed()
    moments = iter([0.0, 0.3, 0.3, 0.3, 0.3])  # begun, and after each try; the second pause ends with the budget
    pauses: list[float] = []
    time = SimpleNamespace(monotonic=lambda: next(moments), sleep=pauses.append)
    monkeypatch.setattr("flask_idempotent.core.guard.time", time)
    bench.breaks("settle")
    hold.complete()
    assert pauses == [0.05, 0.2]
    assert len(bench.store.asked) == 3


def test_no_more_than_a_thousand_endings_are_owed_the_latest_ones(bench: Bench) -> None:
    for n in range(1005):
        bench.guard.owe(Hold(bench.guard, TERMS, f"{n}"), State.DONE)
    for _ in range(210):
        bench.guard.issue(DIGEST, binding="", scene="", ttl=9)
    owners = [asked[1].owner for asked in bench.store.asked if asked[0] == "settle"]
    assert owners == [f"{n}" for n in range(5, 1005)]


def test_an_event_without_terms_is_of_nobody(bench: Bench) -> None:
    bench.guard.tell("unguarded")
    assert bench.events == [Event("unguarded", "", "", "", "")]
