"""A breaker: callers do not queue up behind a store that lets each of them wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from .errors import StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

SLOW: Final = 0.2
"""Seconds. A failure that comes faster costs nobody anything, and the store is asked again at once."""
SHORTEST, LONGEST = 1.0, 10.0
"""Seconds for which nobody asks after a slow failure: at least, at most."""


class Breaker:
    """Opens after a slow failure for twice the time that it took; then one caller tries.

    :param clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._closed_again = 0.0
        self._pause = SHORTEST

    def call(self, ask: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Ask the store, or refuse at once while the breaker is open.

        :raises StoreUnavailable: the breaker is open, or ``ask`` raised it.
        """
        self.check()
        return self.watch(ask, *args, **options)

    def watch(self, ask: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Ask in any case, and learn from how it went."""
        started = self._clock()
        try:
            answer = ask(*args, **options)
        except StoreUnavailable:
            self._failed(self._clock() - started)
            raise
        self._closed_again = 0.0
        return answer

    def check(self) -> None:
        """Let the caller through to :meth:`watch`, or not.

        :raises StoreUnavailable: the breaker is open.
        """
        if not self._closed_again:
            return
        with self._lock:
            now = self._clock()
            if now < self._closed_again:
                raise StoreUnavailable("The store did not answer a moment ago; it is not asked again yet.")
            # Half open: this caller tries, the others go on being refused until it is known how that went.
            self._closed_again = now + self._pause

    def _failed(self, seconds: float) -> None:
        if seconds < SLOW:
            return
        with self._lock:
            self._pause = min(LONGEST, max(SHORTEST, 2 * seconds))
            self._closed_again = self._clock() + self._pause
