"""Every way in which Redis may be away is StoreUnavailable, soon; a mistake of ours is not."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry

from flask_idempotent.core.errors import StoreUnavailable
from flask_idempotent.stores import from_object
from flask_idempotent.stores.redis import store as module
from tests.live import HOST, free_port
from tests.proxy import FaultProxy
from tests.servers import RedisCluster, RedisServer
from tests.stores.outage_steps import KEY, SOON, Answering, Connect, is_away, steps, works, writes


class TestAway:
    def test_nobody_listens(self, connect: Connect) -> None:
        for step in steps(connect(f"redis://{HOST}:{free_port()}")):
            is_away(step)

    def test_it_stops_and_comes_back(self, connect: Connect, own_valkey: RedisServer) -> None:
        store = connect(own_valkey.url)
        works(store)
        own_valkey.stop()
        for step in steps(store):
            is_away(step)
        own_valkey.start()
        works(store)

    def test_it_stands_still(self, connect: Connect, own_valkey: RedisServer) -> None:
        store = connect(own_valkey.url)
        works(store)
        own_valkey.freeze()
        for step in steps(store):
            assert isinstance(is_away(step).__cause__, redis.TimeoutError)
        own_valkey.resume()
        works(store)

    def test_nothing_comes_through(
        self, connect: Connect, valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy]
    ) -> None:
        proxy = fault_proxy(valkey.port)
        store = connect(proxy.url)
        works(store)
        proxy.black_hole = True
        for step in steps(store):
            is_away(step)

    def test_a_time_out_is_not_tried_again(self, connect: Connect) -> None:
        with Answering(b"") as silent:
            is_away(writes(connect(silent.url))[0])
            assert silent.accepted == 1

    def test_a_broken_connection_is_tried_again_once(
        self, connect: Connect, valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy]
    ) -> None:
        proxy = fault_proxy(valkey.port)
        store = connect(proxy.url)
        works(store)
        valkey.control.config_resetstat()
        proxy.drop_reply(b"EVALSHA", times=3)
        is_away(writes(store)[0])
        assert (proxy.dropped, valkey.calls("evalsha")) == (2, 2)

    def test_twenty_at_once_do_not_wait_for_each_other(self, connect: Connect, own_valkey: RedisServer) -> None:
        store = connect(own_valkey.url)
        works(store)
        own_valkey.freeze()
        with ThreadPoolExecutor(20) as pool:
            started = time.monotonic()
            list(pool.map(lambda _: is_away(writes(store)[1]), range(20)))
            assert time.monotonic() - started < 2 * SOON

    def test_a_name_that_nobody_knows(self, connect: Connect) -> None:
        with pytest.raises(StoreUnavailable):
            connect("redis://no-such-host.invalid").get(KEY)

    def test_another_kind_of_server(self, connect: Connect) -> None:
        with Answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as web:
            is_away(writes(connect(web.url))[0])


class TestRefusing:
    def test_a_replica(self, connect: Connect, own_valkey: RedisServer, valkey: RedisServer) -> None:
        store = connect(own_valkey.url)
        works(store)
        own_valkey.control.replicaof(HOST, valkey.port)
        for step in writes(store):
            assert isinstance(is_away(step).__cause__, redis.ReadOnlyError)
        own_valkey.control.replicaof("NO", "ONE")
        works(store)

    @pytest.mark.parametrize("service", ["valkey91", "valkey81", "redis62", "redis82"])
    def test_memory_is_full(self, connect: Connect, service: str, new_server: Callable[..., RedisServer]) -> None:
        server = new_server(service)
        store = connect(server.url)
        works(store)
        server.control.config_set("maxmemory-policy", "noeviction")
        server.control.config_set("maxmemory", 1)
        for step in writes(store):
            is_away(step)
        assert store.get(KEY) is None
        server.control.config_set("maxmemory", 0)
        works(store)

    def test_a_failed_save(self, connect: Connect, own_valkey: RedisServer, tmp_path: Path) -> None:
        store = connect(own_valkey.url)
        control = own_valkey.control
        (Path(control.config_get("dir")["dir"]) / "dump.rdb").mkdir()
        control.config_set("save", "3600 1")
        control.set("something", "to save")
        control.bgsave()
        while control.info("persistence")["rdb_last_bgsave_status"] == "ok":
            pass
        for step in writes(store):
            assert "MISCONF" in str(is_away(step).__cause__)
        control.config_set("save", "")  # else it cannot stop either
        works(store)

    def test_somebodys_endless_script(self, connect: Connect, own_valkey: RedisServer) -> None:
        store = connect(own_valkey.url)
        works(store)
        own_valkey.control.config_set("busy-reply-threshold", 1)
        endless = own_valkey.client(socket_timeout=30)
        thread = threading.Thread(target=lambda: _ignoring(lambda: endless.eval("while true do end", 0)))
        thread.start()
        while not _is_busy(own_valkey):
            pass
        for step in steps(store):
            assert "BUSY" in str(is_away(step).__cause__)
        own_valkey.client().script_kill()
        thread.join()
        works(store)

    def test_the_password_is_wrong_or_missing(self, connect: Connect, new_server: Callable[..., RedisServer]) -> None:
        server = new_server("valkey91")
        server.control.config_set("requirepass", "right")
        for user in ("", ":wrong@"):
            for step in steps(connect(f"redis://{user}{HOST}:{server.port}")):
                is_away(step)
        works(connect(f"redis://:right@{HOST}:{server.port}"))

    def test_the_user_may_not(self, connect: Connect, own_valkey: RedisServer) -> None:
        own_valkey.control.execute_command("ACL SETUSER reader on >pass ~* +get")
        for step in steps(connect(f"redis://reader:pass@{HOST}:{own_valkey.port}")):
            is_away(step)

    @pytest.mark.parametrize(
        "line",
        [
            "LOADING Redis is loading the dataset in memory",
            "CLUSTERDOWN The cluster is down",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "NOREPLICAS Not enough good replicas to write.",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "MOVED 3999 127.0.0.1:6381",
            "ASK 3999 127.0.0.1:6381",
            "UNKILLABLE Sorry the script already executed write commands",
            "ERR max number of clients reached",
            "ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -OOM command not allowed",
            "ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -READONLY You can't write",
        ],
    )
    def test_what_servers_say(self, connect: Connect, line: str) -> None:
        with Answering(f"-{line}\r\n".encode()) as server:
            is_away(writes(connect(server.url))[0])

    def test_a_cluster_that_lost_a_part(self, tmp_path: Path) -> None:
        cluster = RedisCluster(tmp_path)
        cluster.start()
        client = cluster.client(socket_timeout=0.3, retry=Retry(NoBackoff(), 1))
        store = from_object(client)
        works(store)
        for node in cluster.nodes[1:]:
            node.kill()
        refused = 0
        for n in range(12):
            try:
                store.issue(f"idempotency:{n}", binding="b", scene="", ttl=60)
            except StoreUnavailable:
                refused += 1
        client.close()
        cluster.stop()
        assert refused >= 6


class TestOurOwnMistakes:
    @pytest.mark.parametrize("body", [b"return nothing.there", b"return redis.call('GET')", b"this is not Lua"])
    def test_a_broken_script_is_not_an_outage(
        self, connect: Connect, body: bytes, valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_CLAIM", module._Script.of(body))
        with pytest.raises(ResponseError):
            writes(connect(valkey.url))[1]()

    def test_nor_is_an_argument_of_the_wrong_kind(self, connect: Connect, valkey: RedisServer) -> None:
        store = connect(valkey.url)
        with pytest.raises((TypeError, AttributeError)):
            store.issue(KEY, binding=None, scene="", ttl=60)


def _ignoring(work: Callable[[], Any]) -> None:
    with contextlib.suppress(redis.RedisError):  # it was killed, as planned
        work()


def _is_busy(server: RedisServer) -> bool:
    try:
        server.client().ping()
    except redis.RedisError:
        return True
    return False
