"""The store in this process's memory: exact for one process, gone with it.

Every method takes the lock, asks the state machine, and keeps its answer. What has expired goes by itself: a few
records with every write, the rest by a thread that lives while there is something to wait for. A full store refuses; it
never forgets a record that lives.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Final

from ...core import machine
from ...core.errors import StoreUnavailable
from ...core.record import MICROSECONDS, Absent, Claim, Holder, Record, State, microseconds
from .records import Records

_PER_WRITE: Final = 16  # expired records that one write removes
_PER_TURN: Final = 1_000  # records that are looked at while the lock is held once, about a millisecond
_LONGEST_WAIT: Final = 1.0  # seconds that the thread sleeps; what is made meanwhile may end sooner


class MemoryStore:
    """A store for one process: development, tests, a single worker.

    :param max_records: a new record beyond so many is refused with
        :class:`~flask_idempotent.core.errors.StoreUnavailable`.
    :param clock: returns seconds that never go back.
    :raises ValueError: ``max_records`` is not positive.
    """

    def __init__(self, max_records: int = 100_000, clock: Callable[[], float] = time.monotonic) -> None:
        if max_records < 1:
            raise ValueError("max_records must be at least 1")
        self._max_records = max_records
        self._clock = clock
        self._lock = threading.RLock()
        self._records = Records()
        self._thread: threading.Thread | None = None
        _stores.add(self)

    def issue(self, key: str, *, binding: str, scene: str, ttl: float) -> None:
        """See :meth:`flask_idempotent.core.store.Store.issue`."""
        with self._lock:
            now = self._now()
            record = self._records.get(key)
            self._make_room(record, now)
            self._put(key, machine.issue(record, now, binding=binding, scene=scene, ttl=microseconds(ttl)), now)

    def claim(
        self,
        key: str,
        *,
        owner: str,
        lease: float,
        ttl: float,
        must_exist: bool = False,
        binding: str = "",
        scene: str = "",
        fingerprint: str = "",
        takeover: bool = True,
        consume: bool = False,
    ) -> Claim | Holder | Absent:
        """See :meth:`flask_idempotent.core.store.Store.claim`."""
        with self._lock:
            now = self._now()
            record = self._records.get(key)
            answer = machine.claim(
                record,
                now,
                key,
                owner=owner,
                lease=microseconds(lease),
                ttl=microseconds(ttl),
                must_exist=must_exist,
                binding=binding,
                scene=scene,
                fingerprint=fingerprint,
                takeover=takeover,
                consume=consume,
            )
            if isinstance(answer, Claim):
                self._make_room(record, now)
                self._put(key, answer.record, now)
            return answer

    def settle(self, claim: Claim, *, state: State, hold: float, ttl: float, result: bytes | None = None) -> bool:
        """See :meth:`flask_idempotent.core.store.Store.settle`. It is written even into a full store: its effect has
        happened."""
        with self._lock:
            now = self._now()
            record, accepted = machine.settle(
                self._records.get(claim.key),
                now,
                claim,
                state=state,
                hold=microseconds(hold),
                ttl=microseconds(ttl),
                result=result,
            )
            self._put(claim.key, record, now)
            return accepted

    def get(self, key: str) -> Record | None:
        """See :meth:`flask_idempotent.core.store.Store.get`."""
        with self._lock:
            return machine.live(self._records.get(key), self._now())

    def scan(self) -> Iterator[str]:
        """Yield the keys of the live records, as they are at the first step."""
        with self._lock:
            now = self._now()
            keys = [key for key, record in self._records.items() if machine.live(record, now)]
        yield from keys

    def delete(self, key: str) -> bool:
        """Remove a record; return whether there was one."""
        with self._lock:
            now = self._now()
            there = machine.live(self._records.get(key), now) is not None
            self._put(key, None, now)
            return there

    def purge(self) -> int:
        """Remove what has expired; return how many records went."""
        removed = 0
        while True:
            with self._lock:
                now = self._now()
                some = self._purge(now)
            removed += some
            if not some:
                return removed

    def _now(self) -> int:
        return microseconds(self._clock())

    def _make_room(self, record: Record | None, now: int) -> None:
        if record is None and len(self._records) >= self._max_records:
            self._purge(now)
            if len(self._records) >= self._max_records:
                raise StoreUnavailable(
                    f"The memory store is full: it holds {len(self._records)} records that still live. Raise its limit "
                    f"(memory://?max_records={2 * self._max_records}), shorten the lives, or use Redis."
                )

    def _purge(self, now: int) -> int:
        return self._records.purge(now, _PER_TURN) or self._records.purge_present(now, _PER_TURN)

    def _put(self, key: str, record: Record | None, now: int) -> None:
        self._records.put(key, record)
        self._records.purge(now, _PER_WRITE)
        if self._records and self._thread is None:
            self._thread = _start_thread(self)

    def _next_turn(self) -> float | None:
        """Remove some expired records; return the seconds until there may be more, None when no record is left."""
        with self._lock:
            now = self._now()
            if self._records.purge(now, _PER_TURN) >= _PER_TURN:
                return 0.001  # let the others have the lock
            if not self._records:
                self._records.trim()
                self._thread = None
                return None
            return min(max((self._records.next_end() - now) / MICROSECONDS, 0.01), _LONGEST_WAIT)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._thread = None  # threads do not survive a fork; the next write starts one


def _start_thread(store: MemoryStore) -> threading.Thread | None:
    thread = threading.Thread(target=_tidy, args=(weakref.ref(store),), name="idempotency-memory", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads, or the interpreter shuts down; every write purges, too
        return None
    return thread


def _tidy(reference: weakref.ref[MemoryStore]) -> None:
    """Purge until nothing is left, or until nobody else holds the store."""
    while (store := reference()) is not None:
        wait = store._next_turn()  # noqa: SLF001  the thread is a part of the store
        del store
        if wait is None:
            return
        time.sleep(wait)


_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()
_held: list[MemoryStore] = []


def _before_fork() -> None:
    """Hold every lock across a fork, so that the child finds no record half-written."""
    _held[:] = _stores
    for store in _held:
        store._lock.acquire()  # noqa: SLF001


def _in_parent() -> None:
    for store in _held:
        store._lock.release()  # noqa: SLF001
    _held.clear()


def _in_child() -> None:
    for store in _held:
        store._after_fork()  # noqa: SLF001
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
