"""The Redis store's scripts: round trips, caches, protocols, the fake, lost replies."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Callable

import fakeredis
import pytest

from flask_idempotent.core.record import Claim, State
from flask_idempotent.stores import from_object
from flask_idempotent.stores.redis import RedisStore
from flask_idempotent.stores.redis import store as module
from tests.proxy import FaultProxy
from tests.servers import RedisCluster, RedisServer
from tests.stores.redis_steps import KEY, claim, complete, issue, made, whole_life


class TestRoundTrips:
    def test_each_step_is_one_command(self, store: RedisStore, redis_server: RedisServer) -> None:
        whole_life(store)
        redis_server.control.config_resetstat()
        whole_life(store, key="idempotency:other")
        assert redis_server.calls("evalsha") == 8
        assert redis_server.calls("eval") == 0

    def test_a_missing_script_costs_one_more_once(self, store: RedisStore, redis_server: RedisServer) -> None:
        for n in range(3):
            issue(store, f"{n}")
        assert (redis_server.calls("evalsha"), redis_server.calls("eval")) == (3, 1)


class TestScriptsAreGone:
    @pytest.mark.case("REDIS-01")
    def test_the_script_cache_is_emptied_between_all_steps(self, store: RedisStore, redis_server: RedisServer) -> None:
        whole_life(store, redis_server.control.script_flush)

    @pytest.mark.case("REDIS-01")
    def test_the_server_restarts_between_issue_and_claim(self, own_valkey: RedisServer) -> None:
        store = made(own_valkey.url)
        issue(store)
        own_valkey.restart()
        issue(store)
        assert isinstance(claim(store, must_exist=True), Claim)

    @pytest.mark.case("REDIS-02")
    def test_other_peoples_scripts_push_ours_out(self, store: RedisStore, redis_server: RedisServer) -> None:
        client = redis_server.client()

        def others_at_work() -> None:
            with client.pipeline(transaction=False) as pipe:
                for n in range(600):
                    pipe.eval(f"return {n} -- {secrets.token_hex(4)}", 0)
                pipe.execute()

        whole_life(store, others_at_work)
        assert redis_server.calls("eval") > 4_200

    def test_each_node_of_a_cluster_has_a_cache_of_its_own(self, cluster: RedisCluster) -> None:
        client = cluster.client()
        store = from_object(client)
        for n in range(12):
            whole_life(store, key=f"idempotency:{n}")
        assert all(0 < node.calls("eval") <= 4 for node in cluster.nodes)
        client.close()


class TestProtocols:
    @pytest.mark.case("REDIS-03")
    @pytest.mark.parametrize("parser", ["hiredis", "pure"])
    @pytest.mark.parametrize("decode", [True, False])
    @pytest.mark.parametrize("protocol", [2, 3])
    def test_the_same_answers(
        self, protocol: int, decode: bool, parser: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if parser == "pure":
            from redis._parsers import _RESP2Parser, _RESP3Parser

            chosen = _RESP2Parser if protocol == 2 else _RESP3Parser
            client = redis_server.client(protocol=protocol, decode_responses=decode)
            client.connection_pool.connection_kwargs["parser_class"] = chosen
        else:
            client = redis_server.client(protocol=protocol, decode_responses=decode)
        store = from_object(client)
        assert claim(store, must_exist=True).__class__.__name__ == "Absent"
        whole_life(store)
        assert store.get("idempotency:none") is None
        assert list(store.scan()) == [KEY]  # type: ignore[attr-defined]


class TestTheFake:
    @pytest.mark.case("REDIS-14")
    @pytest.mark.parametrize("decode", [True, False])
    def test_the_fake_agrees(self, decode: bool) -> None:
        whole_life(from_object(fakeredis.FakeRedis(decode_responses=decode)))

    @pytest.mark.case("REDIS-14")
    def test_the_real_ones_agree(self, store: RedisStore) -> None:
        whole_life(store)

    @pytest.mark.case("REDIS-14")
    def test_without_its_lua_extra_the_message_names_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from fakeredis._commands import SUPPORTED_COMMANDS

        for name in ("eval", "evalsha"):
            monkeypatch.delitem(SUPPORTED_COMMANDS, name)
        with pytest.raises(RuntimeError, match=r'pip install "fakeredis\[lua\]"'):
            issue(from_object(fakeredis.FakeRedis()))

    @pytest.mark.case("REDIS-14")
    def test_the_scripts_use_no_library_that_the_fake_lacks(self) -> None:
        used: set[str] = set()
        for script in (module._ISSUE, module._CLAIM, module._SETTLE, module._GET):
            code = re.sub(rb"--.*", b"", script.body)
            used |= set(re.findall(rb"\b([a-z]+\.[a-z]+)\(", code))  # type: ignore[arg-type]
        assert used == {
            *(b"string.match", b"string.sub", b"string.find", b"string.format"),
            *(b"math.max", b"math.ceil", b"redis.call", b"redis.pcall"),
        }


class TestLostReplies:
    @pytest.mark.parametrize("lost", ["issue", "claim", "settle"])
    def test_a_command_sent_twice_counts_once(
        self, lost: str, valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy]
    ) -> None:
        whole_life(made(valkey.url), key="idempotency:warm")
        proxy = fault_proxy(valkey.port)
        store = made(proxy.url)
        for step in ("issue", "claim", "settle"):
            valkey.control.config_resetstat()
            if step == lost:
                proxy.drop_reply(b"EVALSHA")
            if step == "issue":
                issue(store)
            elif step == "claim":
                won = claim(store, must_exist=True, consume=False)
                assert isinstance(won, Claim)
            else:
                assert complete(store, won)
            assert valkey.calls("evalsha") == (2 if step == lost else 1)
        assert proxy.dropped == 1
        record = store.get(KEY)
        assert record is not None
        assert (record.state, record.result, record.fence) == (State.DONE, b"answer", won.fence)

    def test_a_restore_whose_reply_was_lost_is_a_restore(
        self, valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy]
    ) -> None:
        proxy = fault_proxy(valkey.port)
        store = made(proxy.url)
        for key in (KEY, "idempotency:key"):
            if key == KEY:
                issue(store, key)
            won = claim(store, key)
            proxy.drop_reply(b"EVALSHA")
            assert store.settle(won, state=State.ISSUED, hold=0, ttl=0)
        assert proxy.dropped == 2


@pytest.fixture(autouse=True)
def _hiredis_is_there() -> None:
    """Else "hiredis" in the names of tests above would be untrue."""
    import hiredis

    assert "hiredis" in sys.modules
    assert hiredis.__version__
