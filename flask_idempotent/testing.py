"""Helpers for tests: a clock that is moved by hand, and the contract that every store keeps."""

from __future__ import annotations


class FakeClock:
    """A clock for :class:`~flask_idempotent.stores.memory.MemoryStore` that stands still until it is moved.

    :param start: seconds that it shows first.
    """

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move it on.

        :param seconds: how far; a negative number is refused, the clock never goes back.
        :raises ValueError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError("a clock of a store never goes back")
        self._now += seconds
