"""The Redis store's connections: pools, threads, forks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from flask_idempotent.core.record import Claim
from flask_idempotent.stores import from_object
from tests.servers import RedisServer
from tests.stores.forking import in_child
from tests.stores.outage_steps import Connect, is_away, steps, works


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
        # Idle, all of them: as many as were ever made.
        assert len(store._client.connection_pool._idle) <= 2

    def test_who_waits_is_served_by_what_is_given_back(self, connect: Connect, valkey: RedisServer) -> None:
        store = connect(f"{valkey.url}?max_connections=1&timeout=60")
        pool = store._client.connection_pool
        taken = pool.get_connection()
        with ThreadPoolExecutor(1) as threads:
            waiter = threads.submit(works, store)
            while not pool._waiting:
                assert not waiter.done()
            pool.release(taken)
            waiter.result(timeout=30)


class TestTheShortWay:
    def test_a_tracer_sees_every_command(
        self, connect: Connect, valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[Any] = []
        usual = redis.Redis.execute_command

        def traced(client: Any, *command: Any, **options: Any) -> Any:
            seen.append(command[0])
            return usual(client, *command, **options)

        monkeypatch.setattr(redis.Redis, "execute_command", traced)
        works(connect(valkey.url))
        assert "EVALSHA" in seen

    def test_a_reply_that_nobody_read_answers_nobody_else(
        self, connect: Connect, valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = connect(valkey.url)
        store.issue("idempotency:first", binding="", scene="first", ttl=60)
        store.issue("idempotency:second", binding="", scene="second", ttl=60)

        def interrupted(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(redis.Connection, "read_response", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.get("idempotency:first")
        assert store.get("idempotency:second").scene == "second"

    def test_a_connection_that_the_server_closed_is_made_anew(self, connect: Connect, valkey: RedisServer) -> None:
        store = connect(valkey.url)
        works(store)
        with valkey.client() as other:
            other.client_kill_filter(_type="normal", skipme=True)
        works(store)


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
