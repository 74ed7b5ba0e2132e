"""A clock that is moved by hand."""

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

        :param seconds: how far.
        :raises ValueError: ``seconds`` is negative; the clock of a store never goes back.
        """
        if seconds < 0:
            raise ValueError("the clock of a store never goes back")
        self._now += seconds
