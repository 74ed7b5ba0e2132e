"""A primary with a replica, and three sentinels that say which is which."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import redis
from redis.sentinel import MasterNotFoundError, Sentinel

from tests.live import HOST, Process, answers, free_port
from tests.servers import RedisServer, binary

NAME: Final = "shop"
"""What the sentinels call the primary."""
SENTINELS: Final = 3
QUORUM: Final = 2
PATIENCE: Final = 1_000  # milliseconds without an answer after which the primary counts as dead
LONGEST: Final = 30.0  # seconds for a failover


class SentinelGroup:
    """Two servers, of which the sentinels watch the primary."""

    def __init__(self, base: Path) -> None:
        self.primary = RedisServer("valkey91", base, "--repl-diskless-sync-delay", "0")
        self.replica = RedisServer("valkey91", base, "--replicaof", HOST, str(self.primary.port))
        self._watchers = {free_port(): _watcher(base / f"sentinel-{number}") for number in range(SENTINELS)}
        self.sentinel = Sentinel([(HOST, port) for port in self._watchers])

    def client(self, **options: Any) -> redis.Redis:
        """A client of whichever is the primary; the caller closes it."""
        return self.sentinel.master_for(NAME, **options)

    def start(self) -> SentinelGroup:
        self.primary.start()
        self.replica.start()
        self.replica.process.wait_ready(self._is_copied)
        for port, watcher in self._watchers.items():
            watched = f"sentinel monitor {NAME} {HOST} {self.primary.port} {QUORUM}"
            patience = f"sentinel down-after-milliseconds {NAME} {PATIENCE}"
            watcher.folder.joinpath("conf").write_text(f"port {port}\nbind {HOST}\n{watched}\n{patience}\n")
            watcher.spawn()
            watcher.wait_ready(partial(answers, port, b"PING\r\n", b"+PONG"))
        return self

    def _is_copied(self) -> bool:
        return bool(self.replica.control.info("replication")["master_link_status"] == "up")

    def fail_over(self) -> None:
        """Kill the primary; return when the sentinels call the replica so."""
        _until(self._know_the_replica)
        self.primary.kill()
        _until(self._follow_the_replica)

    def _know_the_replica(self) -> bool:
        return all(watcher.sentinel_master(NAME)["num-slaves"] == 1 for watcher in self.sentinel.sentinels)

    def _follow_the_replica(self) -> bool:
        with contextlib.suppress(MasterNotFoundError):  # between the two
            return bool(self.sentinel.discover_master(NAME) == (HOST, self.replica.port))
        return False

    def stop(self) -> None:
        for asked in self.sentinel.sentinels:
            asked.close()
        for watcher in self._watchers.values():
            watcher.stop()
        self.replica.stop()
        self.primary.stop()

    def flush(self) -> None:
        self.primary.flush()


def _until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST
    while not happened():
        assert time.monotonic() < end, "the sentinels did not fail over"
        time.sleep(0.02)


def _watcher(folder: Path) -> Process:
    return Process("sentinel", [binary("valkey91"), "conf", "--sentinel"], folder)
