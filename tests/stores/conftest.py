"""Redis stores as fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flask_idempotent.stores import from_url
from flask_idempotent.stores.redis import RedisStore
from tests.sentinels import SentinelGroup
from tests.servers import RedisServer
from tests.stores.redis_steps import made


@pytest.fixture
def store(redis_server: RedisServer) -> RedisStore:
    """A store on each server in turn."""
    return made(redis_server.url)


@pytest.fixture
def connect() -> Iterator[Callable[[str], Any]]:
    """``connect(url)``: a store, closed after the test: the errors that tests keep hold it in their frames."""
    opened: list[Any] = []

    def connect(url: str) -> Any:
        opened.append(from_url(url))
        return opened[-1]

    yield connect
    for store in opened:
        store._client.close()


@pytest.fixture(scope="session")
def svc_sentinels(server_folder: Path) -> Iterator[SentinelGroup]:
    group = SentinelGroup(server_folder).start()
    yield group
    group.stop()


@pytest.fixture
def sentinels(svc_sentinels: SentinelGroup) -> SentinelGroup:
    """A primary, its replica and three sentinels, emptied before the test."""
    svc_sentinels.flush()
    return svc_sentinels
