"""Every store keeps the contract, on every server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest

from flask_idempotent.stores import from_object, from_url
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.stores.redis import RedisStore
from flask_idempotent.testing import AdminStoreContract, FakeClock
from tests.sentinels import SentinelGroup
from tests.servers import RedisCluster, RedisServer
from tests.stores.aging import age


class TestMemory(AdminStoreContract):
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def store(self, clock: FakeClock) -> MemoryStore:
        return MemoryStore(clock=clock)

    def advance(self, store: MemoryStore, key: str, seconds: float) -> None:
        store._clock.advance(seconds)  # type: ignore[attr-defined]


class _Redis(AdminStoreContract):
    def advance(self, store: RedisStore, key: str, seconds: float) -> None:
        age(store._client, key, seconds)


class TestRedis(_Redis):
    @pytest.fixture
    def store(self, redis_server: RedisServer) -> Any:
        return from_url(f"{redis_server.url}?socket_timeout=10")


class TestFakeRedis(_Redis):
    @pytest.fixture(params=[True, False], ids=["decoded", "bytes"])
    def store(self, request: pytest.FixtureRequest) -> Any:
        return from_object(fakeredis.FakeRedis(decode_responses=request.param))


class TestCluster(_Redis):
    @pytest.fixture
    def store(self, cluster: RedisCluster) -> Iterator[Any]:
        client = cluster.client()
        yield from_object(client)
        client.close()


class TestSentinel(_Redis):
    @pytest.fixture
    def store(self, sentinels: SentinelGroup) -> Iterator[Any]:
        client = sentinels.client()
        yield from_object(client)
        client.close()
