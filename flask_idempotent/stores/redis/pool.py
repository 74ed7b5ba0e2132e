"""The connections of a client that this package makes, taken and given back in a microsecond: redis-py's take eight."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Any, Final
from weakref import WeakSet

import redis
from redis.exceptions import ConnectionError as BrokenConnection


class Pool(redis.ConnectionPool):
    """At most so many connections, the one used last first. Nobody looks whether one still stands: a command on one
    that the server has closed is sent again on a new one.

    :param max_connections: how many there may be.
    :param timeout: seconds to wait while all of them are at work; None waits for ever.
    :param options: as redis-py's pools have them.
    """

    def __init__(self, *, max_connections: int = 50, timeout: float | None = None, **options: Any) -> None:
        self.timeout = timeout
        super().__init__(max_connections=max_connections, **options)
        _everyone.add(self)

    def reset(self) -> None:
        """Forget everything: in the child of a fork the connections are the parent's, and a lock may be held by a
        thread that does not live here."""
        super().reset()
        self._idle: deque[Any] = deque()
        self._made = 0
        self._waiting = 0
        vars(self).pop("_given", None)

    def get_connection(self, *_: object, **__: object) -> Any:
        """Return a connection, which is to be released.

        :raises redis.exceptions.ConnectionError: none became free in time.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return self._make_or_wait()

    def release(self, connection: Any) -> None:
        """Let others use it."""
        self._idle.append(connection)
        # Who waits has said so before it looked for the last time: either it saw this connection, or it is seen here.
        if self._waiting:
            given = self._condition()
            with given:
                given.notify()

    def disconnect(self, inuse_connections: bool = True) -> None:  # noqa: ARG002  # those at work are not known
        """Close those that are not at work; each is made anew when it is used."""
        for connection in list(self._idle):
            connection.disconnect()

    def _condition(self) -> threading.Condition:
        # Made when it is needed: gevent replaces the locks after the fork, and so after reset(). In one step: two
        # threads may need it at once.
        given: threading.Condition = vars(self).setdefault("_given", threading.Condition())
        return given

    def _make_or_wait(self) -> Any:
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        given = self._condition()
        with given:
            self._waiting += 1
            try:
                while True:
                    # One that was given back may be taken by somebody who did not wait.
                    try:
                        return self._idle.pop()
                    except IndexError:
                        pass
                    if self._made < self.max_connections:
                        connection = self.make_connection()
                        self._made += 1
                        return connection
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise BrokenConnection("No connection available.")
                    given.wait(left)
            finally:
                self._waiting -= 1


_everyone: Final[WeakSet[Pool]] = WeakSet()


def _reset_all() -> None:
    for pool in list(_everyone):
        pool.reset()


os.register_at_fork(after_in_child=_reset_all)
