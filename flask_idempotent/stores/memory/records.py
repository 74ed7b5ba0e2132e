"""Records, filed by the second in which they end, so that those that have ended are found without a search."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import islice

from ...core.record import MICROSECONDS, Record


class Records:
    """Records by their keys. Not locked: whoever has them does that."""

    def __init__(self) -> None:
        self._by_key: dict[str, Record] = {}
        self._seconds: dict[int, set[str]] = {}  # the second in which they end -> keys
        self._order: list[int] = []  # heap of the seconds above, each once

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: str) -> Record | None:
        """Return the record of a key, even one that has ended."""
        return self._by_key.get(key)

    def items(self) -> Iterable[tuple[str, Record]]:
        """Return all keys and records."""
        return self._by_key.items()

    def put(self, key: str, record: Record | None) -> None:
        """Put a record in the place of what was there; None removes it."""
        old = self._by_key.get(key)
        if record is old:
            return
        if old is not None:
            self._forget(key, old)
        if record is not None:
            self._file(key, record)

    def purge(self, now: int, limit: int) -> int:
        """Remove at most ``limit`` records of the seconds that are over; return how many went.

        :param now: microseconds.
        """
        removed = 0
        while self._order and self._order[0] < now // MICROSECONDS and removed < limit:
            keys = self._seconds[self._order[0]]
            while keys and removed < limit:
                del self._by_key[keys.pop()]
                removed += 1
            if not keys:
                del self._seconds[heapq.heappop(self._order)]
        return removed

    def purge_present(self, now: int, limit: int) -> int:
        """Look at some records of the second that is not over, and remove the ended ones; return how many went.

        :param now: microseconds.
        :param limit: how many are looked at, at most.
        """
        keys = list(islice(self._seconds.get(now // MICROSECONDS, ()), limit))
        ended = [(key, record) for key in keys if (record := self._by_key[key]).expires_at <= now]
        for key, record in ended:
            self._forget(key, record)
        return len(ended)

    def next_end(self) -> int:
        """Return the moment (microseconds) at which the first second of them is over; there must be a record."""
        return (self._order[0] + 1) * MICROSECONDS

    def trim(self) -> None:
        """Give back the memory of what was large and is empty: dicts and sets never shrink."""
        self._by_key.clear()
        self._seconds.clear()
        self._order.clear()

    def _file(self, key: str, record: Record) -> None:
        self._by_key[key] = record
        second = record.expires_at // MICROSECONDS
        if second not in self._seconds:
            self._seconds[second] = set()
            heapq.heappush(self._order, second)
        self._seconds[second].add(key)

    def _forget(self, key: str, record: Record) -> None:
        del self._by_key[key]
        second = record.expires_at // MICROSECONDS
        keys = self._seconds[second]
        keys.remove(key)
        if not keys:
            self._seconds[second] = set()  # a set never shrinks; the second itself goes when it is over
