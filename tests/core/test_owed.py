"""What a store that was away is owed: what it may hold all the same, and what it does not know yet."""

from __future__ import annotations

import pytest

from flask_idempotent.core.errors import RecordInvalid, StoreUnavailable
from flask_idempotent.core.events import Event
from flask_idempotent.core.guard import Guard
from flask_idempotent.core.record import Record, State
from tests.core.test_guard import Bench, terms


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def refused(bench: Bench, digest: str) -> None:
    with pytest.raises(StoreUnavailable) as refusal:
        bench.claim(token=False, digest=digest)
    refusal.value.lost.release()


@pytest.mark.case("REDIS-06")
def test_thousands_that_the_breaker_refused_do_not_crowd_out_what_was_done(bench: Bench) -> None:
    first = bench.claim(token=False)
    bench.store.lost_commands, bench.store.seconds_lost = 99, 0.6
    first.complete(b"answer")  # the store could not be told; the breaker is open from here on
    asked = len(bench.store.asked)
    for number in range(2000):
        refused(bench, f"{number:024}")
    assert len(bench.store.asked) == asked
    bench.store.lost_commands = 0

    bench.time.advance(11)
    bench.claim(token=False, digest="e" * 24)

    assert bench.record.state is State.DONE
    assert bench.store.asked[asked:] == ["claim", "settle"]


def test_one_that_was_sent_is_given_back_though_its_reply_never_came(bench: Bench) -> None:
    bench.store.lost_replies, bench.store.seconds_lost = 2, 0.3
    refused(bench, terms().digest)
    assert bench.record.state is State.RUNNING

    bench.time.advance(11)
    assert bench.claim(token=False, digest="e" * 24).claim is not None
    assert bench.claim(token=False).claim is not None


@pytest.mark.case("S5")
def test_a_takeover_whose_replies_were_lost_is_told_once(bench: Bench) -> None:
    bench.issue()
    bench.claim(description="order")  # and its worker died
    bench.clock.advance(11)
    bench.store.lost_replies = 2
    with pytest.raises(StoreUnavailable) as refusal:
        bench.claim(description="order")
    assert "taken_over" not in bench.told
    bench.store.lost_commands = 1  # the first word to the store is lost, too
    refusal.value.lost.release()
    assert bench.record.state is State.RUNNING
    bench.claim(token=False, digest="e" * 24)

    assert bench.record.state is State.ISSUED
    told = Event("taken_over", terms().digest, "s", "order", "its reply was lost; it is given back")
    assert [event for event in bench.events if event.name == "taken_over"] == [told]


def test_what_is_given_back_unseen_is_told_of_only_if_it_took_over(bench: Bench) -> None:
    bench.issue()
    bench.store.lost_replies = 2
    with pytest.raises(StoreUnavailable) as refusal:
        bench.claim()
    refusal.value.lost.release()
    assert bench.record.state is State.ISSUED
    assert "taken_over" not in bench.told


def test_another_owners_takeover_is_not_told_of_here(bench: Bench) -> None:
    bench.issue()
    bench.claim()  # and its worker died
    bench.store.lost_commands = 2
    with pytest.raises(StoreUnavailable) as refusal:
        bench.claim()
    bench.clock.advance(11)
    taken = Guard(bench.store).claim(terms())  # another process
    refusal.value.lost.release()

    assert "taken_over" not in bench.told
    assert bench.record.owner == taken.owner


def test_a_damaged_record_is_left_as_it_is(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.store.lost_replies = 2
    with pytest.raises(StoreUnavailable) as refusal:
        bench.claim(token=False)

    def damaged(key: str) -> Record | None:
        raise RecordInvalid

    monkeypatch.setattr(bench.store, "get", damaged)
    refusal.value.lost.release()
    assert bench.store.asked[-1] == "settle"
    assert bench.claim(token=False, digest="e" * 24).claim is not None
