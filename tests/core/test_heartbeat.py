"""The heartbeat: holds that are watched get their news, by one thread, after forks and under gevent, and no longer."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flask_idempotent.core import heartbeat as module
from flask_idempotent.core.errors import InProgress, StoreUnavailable
from flask_idempotent.core.events import Event
from flask_idempotent.core.guard import Guard
from flask_idempotent.core.heartbeat import Heartbeat
from flask_idempotent.core.hold import Hold, Terms
from flask_idempotent.core.record import Claim, Record, State
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock
from tests.helpers import events_logged
from tests.stores.forking import in_child

LEASE = 0.3  # seconds; the store's clock stands still unless a test moves it
PATIENCE = 20.0


class Watched(MemoryStore):
    """Counts what is extended, and errs as it is told."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        super().__init__(clock=self.clock)
        self.beats: Counter[str] = Counter()
        self.errors: list[Exception] = []

    def settle(self, claim: Claim, *, state: State, hold: float, ttl: float, result: bytes | None = None) -> bool:
        if state is State.RUNNING:
            self.beats[claim.key] += 1
            if self.errors:
                raise self.errors.pop()
        return super().settle(claim, state=state, hold=hold, ttl=ttl, result=result)


class Bench:
    def __init__(self) -> None:
        self.store = Watched()
        self.events: list[Event] = []
        self.guard = Guard(self.store, listener=self.events.append)
        self.heartbeat = Heartbeat()

    def claim(self, digest: str = "a", lease: float = LEASE) -> Hold:
        return self.guard.claim(Terms(digest, token=False, lease=lease, life=3600, ttl=3600))

    def beats(self, hold: Hold) -> int:
        assert hold.claim is not None
        return self.store.beats[hold.claim.key]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.heartbeat._news.clear()
    made.heartbeat._tick = 3600.0  # its thread sleeps for the rest of the run
    made.heartbeat._sooner.set()


def until(happened: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.002)


# -- it keeps the claim --------------------------------------------------------------------------------------------


def test_work_that_outlives_its_lease_many_times_keeps_its_claim(bench: Bench) -> None:
    hold = bench.claim()
    with bench.heartbeat.watch(hold):
        for beat in range(1, 11):
            until(lambda beat=beat: bench.beats(hold) >= beat)  # type: ignore[misc]
            bench.store.clock.advance(LEASE * 0.9)
            with pytest.raises(InProgress):
                bench.claim()
    hold.complete(b"done")

    assert [event.name for event in bench.events if event.name not in ("duplicate", "claimed")] == ["completed"]


def test_the_first_news_is_due_at_a_third_of_the_lease_and_not_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "time", type("time", (), {"monotonic": staticmethod(lambda: now[0])}))
    older, younger = bench.claim("older"), bench.claim("younger")
    with bench.heartbeat.watch(older):
        now[0] = LEASE * 0.30
        with bench.heartbeat.watch(younger):
            now[0] = LEASE * 0.34
            until(lambda: bench.beats(older) == 1)
            assert bench.beats(younger) == 0
            now[0] = LEASE * 0.64
            until(lambda: bench.beats(younger) == 1)
            assert bench.beats(older) == 1


def test_who_is_done_is_extended_no_more(bench: Bench) -> None:
    done, working = bench.claim("done"), bench.claim("working")
    with bench.heartbeat.watch(working):
        with bench.heartbeat.watch(done):
            until(lambda: bench.beats(done))
        before = bench.beats(done)
        until(lambda: bench.beats(working) > before + 3)
        assert bench.beats(done) == before
    assert bench.heartbeat._news == {}


@pytest.mark.parametrize("how", ["kept", "completed", "consumed"])
def test_what_stands_as_done_is_not_extended(bench: Bench, how: str) -> None:
    terms = Terms("a", token=False, lease=LEASE, life=3600, ttl=3600, consume=how == "consumed")
    hold, working = bench.guard.claim(terms), bench.claim("working")
    with bench.heartbeat.watch(hold), bench.heartbeat.watch(working):
        if how == "kept":
            hold.keep()
        elif how == "completed":
            hold.complete()
        before = bench.beats(hold)
        until(lambda: bench.beats(working) > 3)
        assert bench.beats(hold) == before


# -- when it goes wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["complete", "restore", "fail"])
def test_a_claim_that_was_taken_over_is_told_once_and_asked_for_no_more(
    bench: Bench, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    late = bench.claim()
    bench.store.clock.advance(LEASE)
    second = bench.claim()
    working = bench.claim("working")
    with bench.heartbeat.watch(working), bench.heartbeat.watch(late):
        until(lambda: late not in bench.heartbeat._news)
        before = bench.beats(late)
        until(lambda: bench.beats(working) > 3)
        assert bench.beats(late) == before
        assert not late.extend()
    getattr(late, then)()

    assert events_logged(caplog.records, logging.ERROR) == ["claim_lost"]
    assert events_logged(caplog.records, logging.WARNING) == ["taken_over"]
    assert second.claim is not None
    assert bench.guard.get("a") == second.claim.record


def test_a_store_that_does_not_answer_is_asked_again_well_before_the_lease_is_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "time", type("time", (), {"monotonic": staticmethod(lambda: now[0])}))
    hold = bench.claim()
    bench.store.errors.append(StoreUnavailable())
    with bench.heartbeat.watch(hold):
        now[0] = LEASE * 0.34
        until(lambda: bench.beats(hold) == 2)  # no later than the next time it wakes
    assert bench.store.errors == []


@pytest.mark.parametrize("error", [ValueError("a store of the app's"), RuntimeError("its server knows no scripts")])
def test_an_error_of_any_kind_does_not_end_it(bench: Bench, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    hold, other = bench.claim(), bench.claim("other")
    bench.store.errors.append(error)
    with bench.heartbeat.watch(hold), bench.heartbeat.watch(other):
        until(lambda: bench.beats(hold) >= 2 and bench.beats(other) >= 2)
    assert str(error) in caplog.text
    assert f"The heartbeat could not extend the claim of digest {hold.terms.digest}." in caplog.messages


def test_without_a_thread_the_work_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with bench.heartbeat.watch(bench.claim("first")):
            pass
    hold = bench.claim()
    with bench.heartbeat.watch(hold):  # and the next one tries again
        until(lambda: bench.beats(hold))


def beating() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "flask_idempotent-heartbeat"]


# -- its thread ----------------------------------------------------------------------------------------------------


def test_there_is_one_thread_and_it_holds_nobody_up(bench: Bench) -> None:
    before = set(beating())
    holds = [bench.claim(f"{n}") for n in range(50)]
    barrier = threading.Barrier(50)

    def work(hold: Hold) -> None:
        barrier.wait(PATIENCE)
        with bench.heartbeat.watch(hold):
            until(lambda: bench.beats(hold))

    workers = [threading.Thread(target=work, args=(hold,)) for hold in holds]
    for worker in workers:
        worker.start()
    until(lambda: all(bench.beats(hold) for hold in holds))
    for worker in workers:
        worker.join(PATIENCE)

    (thread,) = set(beating()) - before
    assert thread.daemon


def test_no_thread_before_the_first_claim(bench: Bench) -> None:
    assert bench.heartbeat._thread is None
    with bench.heartbeat.watch(bench.claim()):
        assert bench.heartbeat._thread is not None


def test_a_shorter_lease_wakes_it_sooner(bench: Bench) -> None:
    with bench.heartbeat.watch(bench.claim("long", lease=30_000)):
        short = bench.claim("short")
        with bench.heartbeat.watch(short):
            until(lambda: bench.beats(short) > 1)


def test_it_works_again_in_a_forked_child(bench: Bench) -> None:
    hold = bench.claim()
    with bench.heartbeat.watch(hold):
        until(lambda: bench.beats(hold))

        def work() -> None:
            assert bench.heartbeat._thread is None
            of_child = bench.claim("child")
            before = bench.beats(hold)
            with bench.heartbeat.watch(of_child):
                until(lambda: bench.beats(of_child) > 1)
            assert bench.beats(hold) == before  # the parent's are the parent's

        assert in_child(work)()
        before = bench.beats(hold)
        until(lambda: bench.beats(hold) > before)


def test_a_fork_while_its_lock_is_held_stops_nobody(bench: Bench) -> None:
    def work() -> None:
        hold = bench.claim()
        with bench.heartbeat.watch(hold):
            until(lambda: bench.beats(hold))

    with bench.heartbeat._lock:
        assert in_child(work)()


PROGRAM = """
    import time
    from flask_idempotent.core.guard import Guard
    from flask_idempotent.core.heartbeat import heartbeat
    from flask_idempotent.core.hold import Terms
    from flask_idempotent.core.record import State
    from flask_idempotent.stores.memory import MemoryStore

    beats, settled = [], []

    class Store(MemoryStore):
        def settle(self, claim, *, state, **more):
            (beats if state is State.RUNNING else settled).append(claim.key)
            return super().settle(claim, state=state, **more)

    guard = Guard(Store())

    def claim(digest, lease=0.06):
        return guard.claim(Terms(digest, token=False, lease=lease, life=60, ttl=60))
"""


def ran(before: str, program: str) -> subprocess.CompletedProcess[str]:
    source = "\n".join([before, *map(textwrap.dedent, (PROGRAM, program))])
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=40)


def test_a_process_ends_when_it_wants_and_nothing_is_settled_for_it() -> None:
    done = ran(
        "",
        """
        import atexit
        atexit.register(lambda: print("beats" if beats else "none", settled, flush=True))
        watched = heartbeat.watch(claim("a"))
        watched.__enter__()
        while not beats:
            time.sleep(0.001)
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "beats []\n", "")


PATCH = "from gevent import monkey; monkey.patch_all()"


@pytest.mark.parametrize("patched", ["before", "after"])
def test_under_gevent_it_beats_beside_its_greenlets(patched: str) -> None:
    """gunicorn's worker patches after --preload has imported everything: locks made before stay the system's own, and
    one greenlet that waited for such a lock would stop them all."""
    done = ran(
        PATCH if patched == "before" else "",
        f"""
        {PATCH if patched == "after" else ""}
        import gevent

        def work(number):
            hold = claim(str(number), lease=0.3 / (number + 1))
            with heartbeat.watch(hold):
                end = time.monotonic() + 20
                while beats.count(hold.claim.key) < 3 and time.monotonic() < end:
                    gevent.sleep(0.001)
            return beats.count(hold.claim.key) >= 3

        greenlets = [gevent.spawn(work, number) for number in range(10)]
        gevent.joinall(greenlets, timeout=25)
        print([greenlet.value for greenlet in greenlets].count(True))
        """,
    )
    assert (done.returncode, done.stdout) == (0, "10\n"), done.stderr


def test_a_claim_whose_reply_never_came_is_extended_by_its_owner(bench: Bench) -> None:
    hold = bench.claim()
    confirmed, hold.claim = hold.claim, None
    assert confirmed is not None
    bench.store.clock.advance(LEASE / 2)

    assert hold.extend()
    assert hold.fence == 0
    record = bench.store.get(confirmed.key)
    assert isinstance(record, Record)
    assert record.held_until > confirmed.record.held_until


class Scripted:
    """A hold that is asked for an extension by hand."""

    settled = False

    def __init__(self, lease: float, extended: Callable[[], bool | None] = lambda: True) -> None:
        self.terms = Terms(digest="d", token=True, lease=lease, life=lease, ttl=lease)
        self.asked = 0
        self._extended = extended

    def try_extend(self) -> bool | None:
        self.asked += 1
        return self._extended()


def test_the_shortest_lease_sets_the_pace_also_while_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    beat = Heartbeat()
    paces = []
    for lease in (1e300, 6.0, 600.0):
        with beat.watch(Scripted(lease)):  # type: ignore[arg-type]
            paces.append(beat._tick)
    assert paces == [threading.TIMEOUT_MAX, 1.0, 1.0]


@pytest.mark.parametrize(("lease", "wakes"), [(59.0, True), (60.0, False), (61.0, False)])
def test_only_a_shorter_lease_than_those_before_wakes_it(lease: float, wakes: bool) -> None:
    """Else it would begin its wait anew with each request, and beat never."""
    beat = Heartbeat()
    beat._tick, beat._thread = 10.0, threading.current_thread()
    beat.add(Scripted(lease))  # type: ignore[arg-type]
    assert beat._sooner.is_set() is wakes


@pytest.mark.parametrize(("now", "asked"), [(1.999, 0), (2.0, 1)])
def test_news_is_due_at_a_third_of_the_lease_exactly(now: float, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    beat, hold = Heartbeat(), Scripted(6.0)
    beat._news[hold] = 0.0  # type: ignore[index]
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    beat._look_at(hold, 0.0)  # type: ignore[arg-type]
    assert hold.asked == asked


def test_a_claim_that_is_lost_while_its_view_ends_is_no_error() -> None:
    beat = Heartbeat()
    hold = Scripted(6.0, lambda: bool(beat._news.clear()))
    beat._news[hold] = 0.0  # type: ignore[index]
    beat._look_at(hold, 0.0)  # type: ignore[arg-type]
    assert hold.asked == 1
    assert beat._news == {}
