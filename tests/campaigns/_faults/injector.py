"""The injector: three lanes of faults, to the worker processes, to the network and to the store, that overlap at random
and pause together now and then, so that it can be seen how all recovers."""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import random
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from flask_idempotent.stores.redis import store as scripts
from tests.campaigns._faults.case import Promise
from tests.campaigns._faults.history import FAULTS, LEDGER, Fault, at_work
from tests.campaigns._faults.pair import Pair
from tests.webservers import WebServer

GAP = (0.5, 3.0)  # seconds between two faults of a lane
STORM, CALM = 14.0, 6.0  # seconds with faults, seconds without, in turn
Steps = Iterator[float]


class Injector:
    """Runs in one thread: a fault is a generator that yields the seconds for which it lasts.

    :param chance: chooses order, lengths and victims; the same seed chooses the same.
    :param lanes: those of LANES that have faults.
    """

    LANES = ("workers", "network", "store")

    def __init__(
        self,
        pair: Pair,
        servers: list[WebServer],
        chance: random.Random,
        folder: Path,
        promise: Promise,
        lanes: Collection[str] = LANES,
    ) -> None:
        self._pair = pair
        self._servers = servers
        self._promise = promise
        self._folder = folder
        self._file = (folder / FAULTS).open("a", encoding="utf-8")
        self._began = time.monotonic()
        self.done: list[Fault] = []
        decks = {"workers": self._of_workers(), "network": self._of_network(), "store": self._of_store()}
        seeds = {name: chance.random() for name in self.LANES}
        self._lanes = [self._lane(random.Random(seeds[name]), decks[name]) for name in lanes]

    def run(self, seconds: float, tick: Callable[[], None]) -> None:
        """Do faults for so long, then undo what is on; ``tick`` is called about once a second."""
        end = time.monotonic() + seconds
        due = [(time.monotonic(), number) for number in range(len(self._lanes))] or [(end, 0)]
        ticks = time.monotonic()
        try:
            while (now := time.monotonic()) < end:
                if now >= ticks:
                    tick()
                    ticks = now + 1
                at, number = due[0]
                if at > now:
                    time.sleep(min(at, ticks, end) - now)
                    continue
                wait = next(self._lanes[number])
                heapq.heapreplace(due, (time.monotonic() + wait, number))
        finally:
            for lane in self._lanes:
                lane.close()  # raises in the generator, so that each ``finally`` in it undoes its fault
            self._file.close()

    def _lane(self, chance: random.Random, deck: list[Callable[[random.Random], Steps]]) -> Steps:
        while True:
            for fault in chance.sample(deck, len(deck)):
                yield chance.uniform(*GAP)
                yield self._left_of_calm()
                yield from fault(chance)

    def _left_of_calm(self) -> float:
        since = (time.monotonic() - self._began) % (STORM + CALM)
        return max(0.0, STORM + CALM - since) if since >= STORM else 0.0

    @contextmanager
    def _fault(self, kind: str, pid: int = 0, seconds: float = 0.0, loses: str = "") -> Iterator[None]:
        fault = Fault(kind, time.monotonic(), 0.0, pid, seconds, loses)
        try:
            yield
        finally:
            self.done.append(fault := replace(fault, end=time.monotonic()))
            self._file.write(json.dumps(asdict(fault)) + "\n")
            self._file.flush()

    # -- worker processes ------------------------------------------------------------------------------------------

    def _of_workers(self) -> list[Callable[[random.Random], Steps]]:
        return [self._kill, self._kill, self._freeze_past_lease, self._freeze_past_lease, self._freeze_a_moment]

    def _victim(self, chance: random.Random) -> int:
        """A worker that has a view at work, if there is one. Waits until there are workers: killed ones come again."""
        busy = at_work(self._folder / LEDGER)
        while True:
            masters = {server.process.pid for server in self._servers}
            workers = [pid for server in self._servers for pid in server.pids() if pid not in masters]
            if workers:
                return chance.choice([pid for pid in workers if pid in busy] or workers)

    def _kill(self, chance: random.Random) -> Steps:
        pid = self._victim(chance)
        with self._fault("worker killed", pid):
            _signal(pid, signal.SIGKILL)
            yield 0.0

    def _freeze_past_lease(self, chance: random.Random) -> Steps:
        kind = "worker frozen past its lease" + chance.choice(("", " and killed"))
        yield from self._freeze(kind, chance, self._promise.lease * chance.uniform(1.2, 2.8))

    def _freeze_a_moment(self, chance: random.Random) -> Steps:
        yield from self._freeze(
            "worker frozen within its lease", chance, self._promise.lease * chance.uniform(0.2, 0.8)
        )

    def _freeze(self, kind: str, chance: random.Random, seconds: float) -> Steps:
        pid = self._victim(chance)
        with self._fault(kind, pid):
            _signal(pid, signal.SIGSTOP)
            try:
                yield seconds
            finally:
                _signal(pid, signal.SIGKILL if kind.endswith("killed") else signal.SIGCONT)

    # -- network ---------------------------------------------------------------------------------------------------

    def _of_network(self) -> list[Callable[[random.Random], Steps]]:
        words = {"any": b"EVALSHA", "claims": scripts._CLAIM.digest, "settles": scripts._SETTLE.digest}
        drops = [self._drop(f"replies of {name} dropped", word) for name, word in words.items()]
        return [*drops, self._delay, self._delay_past_time_out, self._black_hole, self._reset, self._refuse]

    def _drop(self, kind: str, word: bytes) -> Callable[[random.Random], Steps]:
        def drop(chance: random.Random) -> Steps:
            with self._fault(kind):
                self._pair.proxy.drop_reply(to=word, times=chance.randint(1, 8))
                yield chance.uniform(0.3, 1.5)
                self._pair.proxy.drop_reply(times=0)

        return drop

    def _delay(self, chance: random.Random) -> Steps:
        yield from self._delayed("replies delayed", chance.uniform(0.01, 0.15), chance)

    def _delay_past_time_out(self, chance: random.Random) -> Steps:
        yield from self._delayed("replies delayed past the time-out", chance.uniform(0.18, 0.5), chance)

    def _delayed(self, kind: str, seconds: float, chance: random.Random) -> Steps:
        with self._fault(kind):
            self._pair.proxy.delay = seconds
            try:
                yield chance.uniform(0.3, 2.0)
            finally:
                self._pair.proxy.delay = 0.0

    def _black_hole(self, chance: random.Random) -> Steps:
        with self._fault("black hole"):
            self._pair.proxy.black_hole = True
            try:
                yield chance.uniform(0.2, 2.0)
            finally:
                self._pair.proxy.black_hole = False
                self._pair.proxy.reset()  # what went into the hole is lost; a stream with a gap exists nowhere

    def _reset(self, chance: random.Random) -> Steps:
        for _ in range(chance.randint(1, 4)):
            with self._fault("connections reset"):
                self._pair.proxy.reset()
            yield chance.uniform(0.0, 0.3)

    def _refuse(self, chance: random.Random) -> Steps:
        with self._fault("connections refused"):
            self._pair.proxy.refuse()
            try:
                yield chance.uniform(0.2, 1.5)
            finally:
                self._pair.proxy.accept()

    # -- store -----------------------------------------------------------------------------------------------------

    def _of_store(self) -> list[Callable[[random.Random], Steps]]:
        restarts = {
            "store restarted with its append-only file": self._pair.kill_and_restart,
            "store restarted with its snapshot": self._pair.save_and_restart,
        }
        jumps = {
            "clock forward": (0.05, 0.9),
            "clock forward past the lease": (1.2, 4.0),
            "clock back": (-2.0, -0.05),
        }
        return [
            self._freeze_store,
            self._freeze_store,
            *(self._at_once(kind, act) for kind, act in restarts.items()),
            self._at_once("store restarted without its data", self._pair.kill_and_restart_empty, loses="all"),
            self._at_once("script cache flushed", self._pair.flush_scripts),
            self._old_snapshot,
            self._fail_over,
            self._fail_over_and_lose,
            self._full,
            *(self._jump(kind, *(self._promise.lease * edge for edge in edges)) for kind, edges in jumps.items()),
            self._jump("clock forward past every life", self._promise.life, self._promise.life + 100, loses="all"),
        ]

    def _at_once(self, kind: str, act: Callable[[], object], loses: str = "") -> Callable[[random.Random], Steps]:
        def fault(_: random.Random) -> Steps:
            with self._fault(kind, loses=loses):
                act()
            yield 0.0

        return fault

    def _freeze_store(self, chance: random.Random) -> Steps:
        with self._fault("store frozen"):
            self._pair.primary.freeze()
            try:
                yield chance.uniform(0.2, 2.5)
            finally:
                self._pair.primary.resume()

    def _old_snapshot(self, chance: random.Random) -> Steps:
        with self._fault("store restarted with an old snapshot", loses="writes"):
            self._pair.snapshot()
            try:
                yield chance.uniform(0.1, 0.8)
            finally:
                self._pair.kill_and_restart_from_snapshot()

    def _fail_over(self, _: random.Random) -> Steps:
        if self._pair.wait_for_copy():
            with self._fault("failed over in order"):
                self._pair.fail_over()
        yield 0.0

    def _fail_over_and_lose(self, chance: random.Random) -> Steps:
        if not self._pair.wait_for_copy():
            return
        with self._fault("failed over, last writes lost", loses="writes"):
            self._pair.detach()
            try:
                yield chance.uniform(0.1, 0.8)
            finally:
                self._pair.promote_detached()

    def _full(self, chance: random.Random) -> Steps:
        with self._fault("memory full"):
            self._pair.fill()
            try:
                yield chance.uniform(0.3, 2.0)
            finally:
                self._pair.make_room()

    def _jump(self, kind: str, least: float, most: float, loses: str = "") -> Callable[[random.Random], Steps]:
        def jump(chance: random.Random) -> Steps:
            seconds = chance.uniform(least, most)
            with self._fault(kind, seconds=seconds, loses=loses):
                self._pair.move_clock(seconds)
            yield 0.0

        return jump


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
