"""What a store that was away is owed: what it may hold all the same, and what it does not know yet."""

from __future__ import annotations

import pytest

from flask_idempotent.core.errors import StoreUnavailable
from flask_idempotent.core.record import State
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
