"""What a store does while its server is away, and a server that always says the same."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from flask_idempotent.core.errors import StoreUnavailable
from flask_idempotent.core.record import Claim, Record, State
from tests.live import HOST

Connect = Callable[[str], Any]
KEY = "idempotency:k"
HELD = Claim(KEY, Record(State.RUNNING, fence=1, held_until=1, expires_at=1, owner="anna"))
SOON = 1.5  # seconds; each wait of ours is 0.4


def steps(store: Any) -> list[Callable[[], Any]]:
    """All that may need the server."""
    return [
        lambda: store.issue(KEY, binding="b", scene="", ttl=60),
        lambda: store.claim(KEY, owner="anna", lease=30, ttl=60, binding="b"),
        lambda: store.settle(HELD, state=State.DONE, hold=0, ttl=60, result=b"answer"),
        lambda: store.get(KEY),
        lambda: store.delete(KEY),
        lambda: list(store.scan()),
    ]


def writes(store: Any) -> list[Callable[[], Any]]:
    return steps(store)[:3]


def is_away(step: Callable[[], Any]) -> StoreUnavailable:
    """The step is refused soon, and the driver's error is kept."""
    started = time.monotonic()
    with pytest.raises(StoreUnavailable) as caught:
        step()
    assert time.monotonic() - started < SOON
    assert isinstance(caught.value.__cause__, redis.RedisError)
    return caught.value


def works(store: Any) -> None:
    for step in steps(store):
        step()


class Answering:
    """A server that says the same to everything."""

    def __init__(self, line: bytes) -> None:
        self._line = line
        self._listener = socket.create_server((HOST, 0))
        self.url = f"redis://{HOST}:{self._listener.getsockname()[1]}?protocol=2"
        self.accepted = 0

    def __enter__(self) -> Answering:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            while asked := connection.recv(65_536):
                lines = asked.count(b"\r\n*") + asked.startswith(b"*")
                polite = b"+OK\r\n" if b"SETINFO" in asked.upper() else self._line
                connection.sendall(polite * lines)
