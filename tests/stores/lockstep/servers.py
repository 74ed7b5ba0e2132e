"""Servers whose time is moved, and what they say about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol
from unittest import mock

import fakeredis
import redis

from flask_idempotent.core.record import MICROSECONDS
from tests.servers import RedisServer

START: Final = 4_102_444_800_000_000  # the year 2100
STANDS_STILL: Final = ("valkey81", "redis62", "redis82")
NAMES: Final = ("valkey91", *STANDS_STILL, "fakeredis")


class Timed:
    """A client that does each command in one transaction with TIME, for which a server's time stands still.

    :param client: of redis-py or fakeredis, answers as bytes.
    """

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.moment = 0
        """Microseconds: when the last command was done, by the server's clock."""

    def execute_command(self, *command: Any, **options: Any) -> Any:
        transaction = self.client.pipeline(transaction=True)
        transaction.execute_command("TIME")
        transaction.execute_command(*command, **options)
        (seconds, micros), reply = transaction.execute()
        self.moment = seconds * MICROSECONDS + micros
        return reply


class Moved(Protocol):
    """A server whose time can be moved."""

    client: Timed

    def wait(self, micros: int) -> None:
        """Let so many microseconds pass, at least."""


class Running:
    """Valkey 9.1, whose time goes on."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.client = Timed(server.client())

    def wait(self, micros: int) -> None:
        self._server.move_clock(micros / MICROSECONDS)


class Standing:
    """A server whose time stands still to the microsecond."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._moment = START
        self.client = Timed(server.client())
        self.wait(0)

    def wait(self, micros: int) -> None:
        self._moment += micros
        self._server.stop_clock(self._moment)
        self.client.execute_command("PING")
        assert self.client.moment == self._moment, "the server's clock did not follow"


class Fake:
    """fakeredis."""

    def __init__(self) -> None:
        self._moment = START
        self.client = Timed(fakeredis.FakeRedis())

    def wait(self, micros: int) -> None:
        self._moment += micros

    def time(self) -> float:
        """Stand in for ``time.time``."""
        return self._moment / MICROSECONDS


@contextlib.contextmanager
def moved(name: str, folder: Path) -> Iterator[Moved]:
    """Start a server of this name; it ends with the block."""
    if name == "fakeredis":
        fake = Fake()
        with contextlib.ExitStack() as patches:
            for module in ("_socket._base", "commands_mixins.server_mixin", "_helpers"):
                patches.enter_context(mock.patch(f"fakeredis.{module}.time", fake))
            yield fake
        return
    server = RedisServer(name, folder, clock=True).start()
    try:
        yield Standing(server) if name in STANDS_STILL else Running(server)
    finally:
        server.stop()
