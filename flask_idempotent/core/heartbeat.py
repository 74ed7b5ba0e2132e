"""The heartbeat: news from views that are still at work, so that their claims are not taken over.

One daemon thread for each process, started with the first claim. It wakes six times in a lease and extends what was not
extended for a third of it: a claim is extended before half of its lease is over, and a view that is done by then costs
nothing. A worker that is frozen gives no news, and loses its claim.
"""

from __future__ import annotations

import logging
import os
import threading
import time

from .hold import Hold

_logger = logging.getLogger("flask_idempotent")


class Heartbeat:
    """Extends the holds that it watches."""

    def __init__(self) -> None:
        self._reset()
        # A thread does not survive a fork, and a lock may be held by one that does not: the child begins anew.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._sooner = threading.Event()
        self._news: dict[Hold, float] = {}
        self._tick = float("inf")
        self._thread: threading.Thread | None = None

    def watch(self, hold: Hold) -> Watched:
        """Extend ``hold`` while the block runs."""
        return Watched(self, hold)

    def add(self, hold: Hold) -> None:
        """Extend ``hold`` from now on."""
        self._news[hold] = time.monotonic()
        if hold.terms.lease / 6 < self._tick or self._thread is None:
            self._start(hold.terms.lease / 6)

    def remove(self, hold: Hold) -> None:
        """The work is over."""
        self._news.pop(hold, None)

    def _start(self, tick: float) -> None:
        with self._lock:
            self._tick = min(tick, self._tick, threading.TIMEOUT_MAX)
            thread = None
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="flask_idempotent-heartbeat", daemon=True)
                self._thread = thread
        self._sooner.set()
        if thread is not None:
            # Without the lock: under gevent a start lets others run, and a lock made before it was patched stops all.
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter shuts down; the next view tries again
                self._thread = None

    def _run(self) -> None:
        sooner = self._sooner
        while True:
            if sooner.wait(self._tick):
                sooner.clear()
                continue
            for hold, news in self._news.copy().items():
                try:
                    self._look_at(hold, news)
                except Exception:
                    # A store or a listener of the app's own: the other claims still need their news.
                    _logger.exception("The heartbeat could not extend the claim of digest %s.", hold.terms.digest)

    def _look_at(self, hold: Hold, news: float) -> None:
        now = time.monotonic()
        if now - news < hold.terms.lease / 3 or hold not in self._news:
            return
        extended = hold.try_extend()
        if extended and hold in self._news:
            self._news[hold] = now
        if extended is False or hold.settled:  # settled: the view was over meanwhile
            self._news.pop(hold, None)


class Watched:
    """A block during which a hold is extended."""

    __slots__ = ("_heartbeat", "_hold")

    def __init__(self, heartbeat: Heartbeat, hold: Hold) -> None:
        self._heartbeat = heartbeat
        self._hold = hold

    def __enter__(self) -> None:
        self._heartbeat.add(self._hold)

    def __exit__(self, *_: object) -> None:
        self._heartbeat.remove(self._hold)


heartbeat = Heartbeat()
"""The one of this process."""
