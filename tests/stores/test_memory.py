"""What is special about the memory store: its limit, its thread, forks, and time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flask_idempotent.core.errors import StoreUnavailable
from flask_idempotent.core.record import Claim, Record, State
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.stores.memory.records import Records
from flask_idempotent.testing import FakeClock
from tests.stores.forking import in_child

DEADLINE = 10.0  # seconds for what has to happen by itself


def wait_until(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def fill(store: MemoryStore, number: int, ttl: float) -> None:
    for n in range(number):
        store.issue(f"key {ttl} {n}", binding="b", scene="", ttl=ttl)


def tidier_threads() -> int:
    return sum(thread.name == "idempotency-memory" for thread in threading.enumerate())


@pytest.fixture
def tiny_switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class TestThreads:
    @pytest.mark.case("MEM-02")
    @pytest.mark.parametrize("issued", [False, True], ids=["key", "token"])
    def test_one_of_a_hundred_threads_wins_in_every_round(self, issued: bool, tiny_switch_interval: None) -> None:
        store, threads, rounds = MemoryStore(), 100, 200
        barrier = threading.Barrier(threads)
        won: list[int] = []

        def work(number: int) -> None:
            for n in range(rounds):
                if number == n % threads and issued:
                    store.issue(f"key {n}", binding="b", scene="", ttl=60)
                barrier.wait()
                answer = store.claim(
                    f"key {n}", owner=f"{number}", lease=60, ttl=60, must_exist=issued, binding="b", fingerprint="f"
                )
                if isinstance(answer, Claim):
                    won.append(n)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        assert sorted(won) == list(range(rounds))


class TestLimit:
    def test_a_full_store_refuses_and_says_what_helps(self) -> None:
        store = MemoryStore(max_records=3, clock=FakeClock())
        fill(store, 3, ttl=60)
        for attempt in (
            lambda: store.issue("one more", binding="b", scene="", ttl=60),
            lambda: store.claim("one more", owner="anna", lease=60, ttl=60),
        ):
            with pytest.raises(StoreUnavailable, match="max_records=6"):
                attempt()
        assert sorted(store.scan()) == ["key 60 0", "key 60 1", "key 60 2"]

    def test_a_full_store_still_answers_about_what_it_holds(self) -> None:
        store = MemoryStore(max_records=1, clock=FakeClock())
        fill(store, 1, ttl=60)
        store.issue("key 60 0", binding="late copy", scene="", ttl=60)
        claim = store.claim("key 60 0", owner="anna", lease=60, ttl=60, must_exist=True, binding="b")
        assert isinstance(claim, Claim)
        assert store.settle(claim, state=State.DONE, hold=0, ttl=60)

    def test_what_has_expired_makes_room_to_the_microsecond(self) -> None:
        clock = FakeClock()
        store = MemoryStore(max_records=3, clock=clock)
        fill(store, 2, ttl=60)
        fill(store, 1, ttl=60.000001)
        clock.advance(60)
        fill(store, 2, ttl=90)
        with pytest.raises(StoreUnavailable):
            store.issue("one more", binding="b", scene="", ttl=60)
        assert sorted(store.scan()) == ["key 60.000001 0", "key 90 0", "key 90 1"]

    def test_an_effect_is_recorded_even_in_a_full_store(self) -> None:
        clock = FakeClock()
        store = MemoryStore(max_records=1, clock=clock)
        claim = store.claim("mine", owner="anna", lease=10, ttl=10)
        assert isinstance(claim, Claim)
        clock.advance(20)
        store.purge()
        fill(store, 1, ttl=60)
        assert store.settle(claim, state=State.DONE, hold=0, ttl=60, result=b"answer")
        assert sorted(store.scan()) == ["key 60 0", "mine"]

    def test_a_limit_below_one_is_refused(self) -> None:
        with pytest.raises(ValueError, match="max_records"):
            MemoryStore(max_records=0)


class TestGrowth:
    @pytest.mark.case("MEM-03")
    def test_memory_returns_to_the_start_though_nobody_asks(self) -> None:
        tracemalloc.start()
        try:
            clock = FakeClock()  # a slow machine does not see the first ones off before the last is in
            store = MemoryStore(clock=clock)
            before = tracemalloc.get_traced_memory()[0]
            fill(store, 20_000, ttl=1)
            grown = tracemalloc.get_traced_memory()[0] - before
            clock.advance(2)
            wait_until(lambda: store._thread is None)
            gc.collect()
            left = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert grown > 2_000_000
        assert left < 100_000

    @pytest.mark.case("MEM-03")
    def test_old_records_do_not_pile_up_under_steady_traffic(self) -> None:
        clock = FakeClock()
        store = MemoryStore(max_records=10_000, clock=clock)
        for second in range(60):
            for n in range(3_333):
                store.issue(f"{second} {n}", binding="b", scene="", ttl=1)
            clock.advance(1)
        assert len(store._records) < 7_000
        assert store.purge() > 0
        assert len(store._records) == 0

    @pytest.mark.case("MEM-03")
    def test_nobody_waits_long_while_much_expires(self) -> None:
        clock = FakeClock()
        store = MemoryStore(clock=clock)
        fill(store, 100_000, ttl=1)
        clock.advance(5)
        longest = 0.0
        for n in range(1_000):
            started = time.thread_time()  # not what other processes take
            store.issue(f"{n}", binding="b", scene="", ttl=1)
            longest = max(longest, time.thread_time() - started)
        assert longest < 0.02
        wait_until(lambda: len(store._records) <= 1_000)

    def test_given_back_keys_leave_nothing_behind(self) -> None:
        store = MemoryStore(clock=FakeClock())
        for n in range(5_000):
            claim = store.claim(f"key {n}", owner="anna", lease=60, ttl=86_400)
            assert isinstance(claim, Claim)
            assert store.settle(claim, state=State.ISSUED, hold=0, ttl=0)
        assert len(store._records) == 0
        assert (len(store._records._order), sum(map(len, store._records._seconds.values()))) == (1, 0)

    def test_the_thread_ends_when_nothing_is_left_and_comes_back(self) -> None:
        store = MemoryStore()
        for _ in range(2):
            fill(store, 3, ttl=0.05)
            assert store._thread is not None
            wait_until(lambda: store._thread is None)
            assert vars(store._records) == vars(Records())

    def test_without_a_thread_the_writes_purge(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refused)
        clock = FakeClock()
        store = MemoryStore(clock=clock)
        fill(store, 100, ttl=1)
        clock.advance(3)
        fill(store, 10, ttl=5)
        assert len(store._records) == 10

    def test_a_store_that_nobody_holds_is_collected_with_its_thread(self) -> None:
        before = tidier_threads()
        store = MemoryStore()
        fill(store, 3, ttl=3600)
        assert tidier_threads() == before + 1
        reference = weakref.ref(store)
        del store
        wait_until(lambda: gc.collect() >= 0 and reference() is None)
        wait_until(lambda: tidier_threads() <= before)


class TestTime:
    @pytest.mark.case("MEM-04")
    @pytest.mark.parametrize("jump", [3600, -3600])
    def test_the_wall_clock_may_jump(self, jump: int, svc_faketime: str, tmp_path: Path) -> None:
        clock = tmp_path / "clock"
        clock.write_text("+0\n")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "LD_PRELOAD": svc_faketime,
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        script = Path(__file__).with_name("clock_jump.py")
        done = subprocess.run(
            [sys.executable, str(script), str(clock), str(jump)],
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.stdout.splitlines() == ["jumped", "claimed", "running", "done True"], done.stderr


class TestForks:
    def test_a_child_works_though_other_threads_were_busy(self) -> None:
        store = MemoryStore()
        fill(store, 50, ttl=60)
        stop = threading.Event()

        def be_busy() -> None:
            while not stop.is_set():
                fill(store, 50, ttl=0.001)

        busy = [threading.Thread(target=be_busy) for _ in range(3)]
        for thread in busy:
            thread.start()
        try:
            for _ in range(20):
                assert in_child(lambda: _use(store))()
        finally:
            stop.set()
            for thread in busy:
                thread.join()
        assert store.get("of the child") is None

    def test_a_child_finds_no_record_half_written(self) -> None:
        store = MemoryStore(clock=FakeClock())
        half_way, forked = threading.Event(), threading.Event()

        class Slow(dict[str, Record]):
            def __setitem__(self, key: str, record: Record) -> None:
                super().__setitem__(key, record)
                half_way.set()
                forked.wait(0.3)  # nobody can fork now, so this is waited for in vain

        store._records._by_key = Slow()
        writer = threading.Thread(target=lambda: fill(store, 1, ttl=60))
        writer.start()
        half_way.wait(DEADLINE)
        joined = in_child(lambda: store.delete("key 60 0") or pytest.fail("not there"))
        forked.set()
        assert joined()
        writer.join()

    def test_a_child_tidies_up_by_itself(self) -> None:
        store = MemoryStore()
        fill(store, 1, ttl=3600)
        assert store._thread is not None

        def work() -> None:
            assert store._thread is None
            assert store.delete("key 3600 0")
            fill(store, 10, ttl=0.05)
            wait_until(lambda: not store._records)

        assert in_child(work)()
        assert store.get("key 3600 0") is not None


def _use(store: MemoryStore) -> None:
    claim = store.claim("of the child", owner="anna", lease=60, ttl=60)
    assert isinstance(claim, Claim)
    assert store.settle(claim, state=State.DONE, hold=0, ttl=60)
    filed = set().union(*store._records._seconds.values())
    assert filed == {key for key, _ in store._records.items()}
    assert sum(key.startswith("key 60 ") for key in store.scan()) == 50
