"""Locks and intervals: claims beside a token or key. No event tells of their ways, and when the store is dead they cost
less time."""

from __future__ import annotations

from typing import Any

import pytest

from flask_idempotent.core.errors import IdempotencyError, Locked, RecordInvalid, TooSoon
from flask_idempotent.core.hold import Hold
from flask_idempotent.core.record import Holder, Record, State, Verdict
from tests.core.test_guard import Bench

BUSY: dict[str, type[IdempotencyError]] = {"lock": Locked, "interval": TooSoon}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def claim(bench: Bench, kind: str, **changes: Any) -> Hold:
    return bench.claim(token=False, kind=kind, **{"lease": 10, "life": 10, "ttl": 10, **changes})


@pytest.mark.case("S13", "S21")
@pytest.mark.parametrize("kind", BUSY)
@pytest.mark.parametrize(("passed", "left"), [(0, 10), (3.5, 7), (9.2, 1), (9.999, 1)])
def test_who_finds_it_held_is_told_for_how_long(bench: Bench, kind: str, passed: float, left: int) -> None:
    claim(bench, kind, scene="one")
    bench.clock.advance(passed)
    with pytest.raises(BUSY[kind]) as refusal:
        claim(bench, kind, scene="another")
    assert type(refusal.value) is BUSY[kind]
    assert refusal.value.retry_after == left
    assert (bench.told, bench.events[-1].reason, bench.events[-1].scene) == (["refused"], BUSY[kind].reason, "another")


@pytest.mark.case("S13")
def test_when_its_lease_is_over_another_scene_may_have_the_lock(bench: Bench) -> None:
    first = claim(bench, "lock", scene="one")
    assert bench.record.scene == ""
    bench.clock.advance(10)
    second = claim(bench, "lock", scene="another")
    assert second.fence > first.fence
    assert bench.told == []
    first.restore()
    assert bench.record.owner == second.owner
    assert bench.told == ["claim_lost"]


@pytest.mark.case("S21")
@pytest.mark.parametrize("ending", [Hold.keep, Hold.complete, Hold.fail])
def test_an_interval_that_was_kept_is_too_soon_to_its_end(bench: Bench, ending: Any) -> None:
    ending(claim(bench, "interval"))
    bench.clock.advance(4)
    with pytest.raises(TooSoon) as refusal:
        claim(bench, "interval")
    assert refusal.value.retry_after == 6


@pytest.mark.case("S21")
def test_of_an_interval_that_passes_by_itself_nothing_is_told(bench: Bench) -> None:
    first = claim(bench, "interval")
    bench.clock.advance(10)
    second = claim(bench, "interval")
    first.restore()
    second.restore()
    third = claim(bench, "interval")
    third.keep()
    assert bench.told == []


@pytest.mark.parametrize("kind", BUSY)
def test_a_damaged_one_is_said_to_be_damaged(bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = Holder(Record(State.RUNNING), Verdict.DAMAGED, 0)
    monkeypatch.setattr(bench.store, "claim", lambda key, **options: damaged)
    with pytest.raises(RecordInvalid):
        claim(bench, kind)
    assert bench.told == ["record_invalid"]


@pytest.mark.case("S5")
@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 2), (0.25, 1)])
def test_a_dead_store_is_asked_to_open_a_lock_twice_at_most_and_once_if_that_takes_long(
    bench: Bench, seconds: float, asked: int
) -> None:
    hold = claim(bench, "lock")
    bench.store.asked.clear()
    bench.store.lost_commands, bench.store.seconds_lost = 99, seconds
    hold.restore()
    assert bench.store.asked == ["settle"] * asked
    assert bench.told == ["settle_failed"]

    bench.store.lost_commands = 0
    bench.time.advance(11)
    bench.claim(token=False, digest="e" * 24)
    assert claim(bench, "lock").claim is not None


def test_while_the_breaker_is_open_a_lock_waits_for_the_store_and_a_key_is_settled(bench: Bench) -> None:
    lock, key = claim(bench, "lock"), bench.claim(token=False, digest="e" * 24)
    bench.store.asked.clear()
    bench.guard._breaker._failed(0.3)
    lock.restore()
    assert bench.store.asked == []
    key.complete(b"answer")
    assert bench.store.asked == ["settle"]
    assert bench.record.state is State.RUNNING
