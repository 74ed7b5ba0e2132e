"""Stores by URL and by object."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
from redis.exceptions import ConnectionError as BrokenConnection

from flask_idempotent.core.record import Claim, State
from flask_idempotent.core.store import AdminStore
from flask_idempotent.stores import from_object, from_url
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.stores.redis import RedisStore
from tests.sentinels import SentinelGroup
from tests.servers import RedisCluster, RedisServer


def options_of(url: str) -> dict[str, Any]:
    store = from_url(url)
    assert isinstance(store, RedisStore)
    pool = store._client.connection_pool  # type: ignore[attr-defined]
    return pool.connection_kwargs | {"timeout": pool.timeout, "max": pool.max_connections, "pool": pool}


def uses(store: Any) -> None:
    """Issue, claim, complete, look, list, delete."""
    store.issue("idempotency:k", binding="b", scene="", ttl=60)
    claim = store.claim("idempotency:k", owner="anna", lease=30, ttl=60, must_exist=True, binding="b")
    assert isinstance(claim, Claim)
    assert store.settle(claim, state=State.DONE, hold=0, ttl=60, result=b"\xff\x00")
    record = store.get("idempotency:k")
    assert record is not None
    assert record.result == b"\xff\x00"
    assert "idempotency:k" in set(store.scan())
    assert store.delete("idempotency:k")


class TestMemoryUrls:
    def test_the_limit_is_an_option(self) -> None:
        store = from_url("memory://?max_records=1")
        assert isinstance(store, MemoryStore)
        store.issue("a", binding="", scene="", ttl=60)
        with pytest.raises(Exception, match="full"):
            store.issue("b", binding="", scene="", ttl=60)

    def test_each_is_a_store_of_its_own(self) -> None:
        first, second = from_url("memory://"), from_url("memory://")
        first.issue("a", binding="", scene="", ttl=60)
        assert second.get("a") is None

    @pytest.mark.parametrize(
        "url", ["memory://?max_records=0", "memory://?max_records=many", "memory://?size=3", "memory://host/1"]
    )
    def test_a_wrong_option_is_named(self, url: str) -> None:
        with pytest.raises(ValueError, match=r"max_records"):
            from_url(url)


class TestOtherUrls:
    @pytest.mark.parametrize(
        "url", ["sqlalchemy://", "sqlite:///x.db", "postgresql+psycopg://h/d", "mysql+pymysql://h/d"]
    )
    def test_a_database_is_not_in_this_version(self, url: str) -> None:
        with pytest.raises(ValueError, match="not in this version"):
            from_url(url)

    @pytest.mark.parametrize("url", ["memcached://h", "http://h", "localhost:6379", "redis", ""])
    def test_an_unknown_kind_gets_the_list_of_the_known(self, url: str) -> None:
        with pytest.raises(ValueError, match=r"memory://, redis://, rediss://, unix://, valkey://"):
            from_url(url)


class TestRedisUrls:
    @pytest.mark.parametrize(
        ("url", "connection"),
        [
            ("redis://h", redis.Connection),
            ("valkey://h", redis.Connection),
            ("REDIS://h", redis.Connection),
            ("rediss://h", redis.SSLConnection),
            ("valkeys://h", redis.SSLConnection),
            ("unix:///run/redis.sock?db=2", redis.UnixDomainSocketConnection),
        ],
    )
    def test_schemes(self, url: str, connection: type) -> None:
        assert options_of(url)["pool"].connection_class is connection

    def test_ours_wait_less_than_half_a_second_each_time(self) -> None:
        options = options_of("redis://h")
        assert {options[name] for name in ("timeout", "socket_timeout", "socket_connect_timeout")} == {0.4}
        retry = options["retry"]
        assert (retry.get_retries(), retry._supported_errors) == (1, (BrokenConnection,))

    def test_the_query_has_the_last_word(self) -> None:
        options = options_of("redis://:secret@h:7/3?max_connections=7&socket_timeout=2&timeout=3&protocol=2")
        wanted = {"max": 7, "socket_timeout": 2, "timeout": 3, "protocol": 2, "db": 3, "port": 7, "password": "secret"}
        assert {name: options[name] for name in wanted} == wanted

    @pytest.mark.parametrize("url", ["redis://h?no_such_option=1", "redis://h?db=many"])
    def test_a_wrong_option_is_found_at_once_and_named(self, url: str) -> None:
        with pytest.raises(ValueError, match=r"no_such_option|db"):
            from_url(url)

    def test_nothing_is_connected_before_the_first_use(self, valkey: RedisServer) -> None:
        before = valkey.control.info("stats")["total_connections_received"]
        store = from_url(valkey.url)
        assert valkey.control.info("stats")["total_connections_received"] == before
        store.get("k")
        assert valkey.control.info("stats")["total_connections_received"] == before + 1

    def test_a_unix_socket_works(self, new_server: Any, tmp_path: Any) -> None:
        new_server("valkey91", "--unixsocket", str(tmp_path / "s"))
        uses(from_url(f"unix://{tmp_path / 's'}"))

    def test_without_redis_py_the_line_to_run_is_named(self) -> None:
        script = (
            "import sys; sys.modules['redis'] = None\n"
            "from flask_idempotent.stores import from_url\n"
            "from_url('memory://')\n"
            "try: from_url('redis://h')\n"
            "except ImportError as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
        assert 'pip install "flask-idempotency[redis]"' in done.stdout, done.stderr


class TestObjects:
    def test_a_store_is_taken_as_it_is(self) -> None:
        store = MemoryStore()
        assert from_object(store) is store

    @pytest.mark.parametrize("decode", [True, False])
    @pytest.mark.parametrize("protocol", [2, 3])
    def test_clients_of_redis_py(self, decode: bool, protocol: int, redis_server: RedisServer) -> None:
        uses(from_object(redis_server.client(decode_responses=decode, protocol=protocol)))

    def test_a_client_with_an_encoding_of_its_own(self, valkey: RedisServer) -> None:
        client = valkey.client(encoding="latin-1", decode_responses=True)
        store = from_object(client)
        store.issue("k", binding="bü€", scene="", ttl=60)
        assert isinstance(store.claim("k", owner="anna", lease=1, ttl=1, binding="bü€"), Claim)

    def test_a_client_that_holds_one_connection(self, valkey: RedisServer) -> None:
        uses(from_object(valkey.client(single_connection_client=True)))

    def test_fakeredis(self) -> None:
        uses(from_object(fakeredis.FakeStrictRedis(version=(6, 2))))

    @pytest.mark.parametrize("decode", [True, False])
    def test_what_a_sentinel_returns(self, decode: bool, sentinels: SentinelGroup, closing: Any) -> None:
        uses(from_object(closing(sentinels.client(decode_responses=decode))))

    @pytest.mark.parametrize("decode", [True, False])
    def test_a_cluster(self, decode: bool, cluster: RedisCluster, closing: Any) -> None:
        uses(from_object(closing(cluster.client(decode_responses=decode))))

    def test_the_prefix_is_what_scan_asks_for(self, valkey: RedisServer) -> None:
        store = from_object(valkey.client(), prefix="a*[b]?\\c")
        assert isinstance(store, AdminStore)
        for key in ("a*[b]?\\c:1", "aX[b]?\\c:2", "other:3", "a*[b]?\\cX"):
            store.issue(key, binding="", scene="", ttl=60)
        assert list(store.scan()) == ["a*[b]?\\c:1"]

    @pytest.mark.parametrize("client", [redis.asyncio.Redis(), redis.asyncio.Redis.from_url("redis://h")])
    def test_an_asynchronous_client_is_refused(self, client: Any) -> None:
        with pytest.raises(TypeError, match="asynchronous"):
            from_object(client)

    def test_a_client_of_valkey_py_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"redis\.Redis of redis-py talks to Valkey"):
            from_object(fakeredis.FakeValkey())

    @pytest.mark.parametrize("thing", [None, 3, "redis://h", object(), dict, MemoryStore, redis.Redis])
    def test_anything_else_is_told_what_can_be_passed(self, thing: object) -> None:
        with pytest.raises(TypeError, match=r"Pass a URL .*client of redis-py"):
            from_object(thing)


@pytest.fixture
def closing() -> Iterator[Any]:
    opened: list[Any] = []

    def keep(client: Any) -> Any:
        opened.append(client)
        return client

    yield keep
    for client in opened:
        client.close()
