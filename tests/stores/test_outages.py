"""Every way in which Redis may be away is StoreUnavailable, soon; a mistake of ours is not."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry

from flask_idempotent.core.errors import StoreUnavailable
from flask_idempotent.core.record import Claim, Record, State
from flask_idempotent.stores import from_object, from_url
from flask_idempotent.stores.redis import store as module
from tests.live import HOST, free_port
from tests.proxy import FaultProxy
from tests.servers import RedisCluster, RedisServer
from tests.stores.forking import in_child

Connect = Callable[[str], Any]
KEY = "idempotency:k"
HELD = Claim(KEY, Record(State.RUNNING, fence=1, held_until=1, expires_at=1, owner="anna"))
SOON = 1.5  # seconds; each wait of ours is 0.4


@pytest.fixture
def connect() -> Iterator[Connect]:
    """``connect(url)``: a store, closed after the test: the errors that tests keep hold it in their frames."""
    made: list[Any] = []

    def make(url: str) -> Any:
        made.append(from_url(url))
        return made[-1]

    yield make
    for store in made:
        store._client.close()


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


class TestPool:
    def test_ours_waits_a_moment_for_a_connection(self, connect: Connect, valkey: RedisServer) -> None:
        store = connect(f"{valkey.url}?max_connections=1")
        works(store)
        pool = store._client.connection_pool
        taken = pool.get_connection()
        for step in steps(store):
            is_away(step)
        pool.release(taken)
        works(store)

    def test_a_client_of_the_apps_that_has_none_left(self, valkey: RedisServer) -> None:
        client = valkey.client(max_connections=1)
        store = from_object(client)
        taken = client.connection_pool.get_connection()
        for step in steps(store):
            is_away(step)
        client.connection_pool.release(taken)
        works(store)

    def test_many_threads_share_few_connections(self, connect: Connect, valkey: RedisServer) -> None:
        store = connect(f"{valkey.url}?max_connections=2&timeout=20")

        def work(number: int) -> int:
            answer = store.claim(f"idempotency:{number}", owner=f"{number}", lease=30, ttl=60)
            return int(answer.owner)

        with ThreadPoolExecutor(20) as pool:
            assert list(pool.map(work, range(1_000))) == list(range(1_000))
        assert len(store._client.connection_pool._connections) <= 2


class TestForks:
    def test_no_connection_is_shared_across_a_fork(self, connect: Connect, valkey: RedisServer) -> None:
        store = connect(valkey.url)
        works(store)

        def work(process: int) -> None:
            for n in range(200):
                owner = f"{process}-{n}"
                answer = store.claim(f"idempotency:{owner}", owner=owner, lease=30, ttl=60)
                assert isinstance(answer, Claim)
                assert answer.owner == owner

        children = [in_child(lambda process=process: work(process)) for process in (1, 2, 3)]  # type: ignore[misc]
        work(0)
        assert all(joined() for joined in children)


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


def _ignoring(work: Callable[[], Any]) -> None:
    with contextlib.suppress(redis.RedisError):  # it was killed, as planned
        work()


def _is_busy(server: RedisServer) -> bool:
    try:
        server.client().ping()
    except redis.RedisError:
        return True
    return False
