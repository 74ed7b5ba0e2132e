"""What is special about the Redis store: its packed records, its scripts, its round trips."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import fakeredis
import pytest

from flask_idempotent.core.errors import RecordInvalid
from flask_idempotent.core.keys import digest, store_key, token_digest
from flask_idempotent.core.record import Claim, Holder, Record, State, Verdict
from flask_idempotent.stores import from_object, from_url
from flask_idempotent.stores.redis import RedisStore, layout
from flask_idempotent.stores.redis import store as module
from tests.proxy import FaultProxy
from tests.servers import RedisCluster, RedisServer

KEY = "idempotency:k"
DAY = 86_400_000_000  # microseconds


@pytest.fixture
def store(redis_server: RedisServer) -> RedisStore:
    return _made(redis_server.url)


def _made(url: str) -> RedisStore:
    store = from_url(f"{url}?socket_timeout=10")  # the time-outs are not the subject here
    assert isinstance(store, RedisStore)
    return store


def issue(store: Any, key: str = KEY, ttl: float = 60) -> None:
    store.issue(key, binding="b", scene="", ttl=ttl)


def claim(store: Any, key: str = KEY, owner: str = "anna", **options: Any) -> Any:
    return store.claim(key, owner=owner, **{"binding": "b", "lease": 30, "ttl": 60, **options})


def complete(store: Any, won: Claim, result: bytes | None = b"answer") -> bool:
    settled: bool = store.settle(won, state=State.DONE, hold=0, ttl=60, result=result)
    return settled


def whole_life(store: Any, between: Callable[[], Any] = lambda: None, key: str = KEY) -> None:
    """A token from its issue to its replay, given back once; something happens between the steps."""
    for step in (lambda: issue(store, key), between):
        step()
    first = claim(store, key, must_exist=True)
    between()
    assert store.settle(first, state=State.ISSUED, hold=0, ttl=0)
    between()
    second = claim(store, key, "ben", must_exist=True)
    between()
    assert store.settle(second, state=State.RUNNING, hold=30, ttl=60)
    between()
    assert complete(store, second, b"\x00\xff answer")
    between()
    answer = claim(store, key, "carl", must_exist=True)
    assert isinstance(answer, Holder)
    assert answer.verdict is Verdict.DONE
    assert answer.record is not None
    assert answer.record.result == b"\x00\xff answer"
    between()
    assert store.get(key) == answer.record


class TestSize:
    def test_an_issued_token_takes_160_bytes_at_most(self, store: RedisStore, redis_server: RedisServer) -> None:
        for _ in range(20):
            key = store_key("idempotency", token_digest(secrets.token_hex(16)))
            store.issue(key, binding=digest("ip", secrets.token_hex(4)), scene="", ttl=3600)
            assert 100 < redis_server.client().memory_usage(key) <= 160

    def test_the_server_itself_drops_what_has_expired(self, store: RedisStore, redis_server: RedisServer) -> None:
        client = redis_server.client()
        issue(store, ttl=60)
        assert 59_000 < client.pttl(KEY) <= 60_001
        won = claim(store, lease=100)
        assert 199_000 < client.pttl(KEY) <= 200_001
        assert store.settle(won, state=State.ISSUED, hold=0, ttl=0)
        assert 59_000 < client.pttl(KEY) <= 60_001
        won = claim(store, owner="ben", lease=100)
        assert store.settle(won, state=State.RUNNING, hold=200, ttl=60)
        assert 399_000 < client.pttl(KEY) <= 400_001
        assert complete(store, won)
        assert 59_000 < client.pttl(KEY) <= 60_001


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
        store = _made(own_valkey.url)
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
        import re

        used: set[str] = set()
        for script in (module._ISSUE, module._CLAIM, module._SETTLE, module._GET):
            code = re.sub(rb"--.*", b"", script.body)
            used |= set(re.findall(rb"\b([a-z]+\.[a-z]+)\(", code))  # type: ignore[arg-type]
        assert used == {
            *(b"string.match", b"string.sub", b"string.find", b"string.format"),
            *(b"table.concat", b"math.max", b"math.ceil", b"redis.call", b"redis.pcall"),
        }


class TestLostReplies:
    @pytest.mark.parametrize("lost", ["issue", "claim", "settle"])
    def test_a_command_sent_twice_counts_once(
        self, lost: str, valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy]
    ) -> None:
        whole_life(_made(valkey.url), key="idempotency:warm")
        proxy = fault_proxy(valkey.port)
        store = _made(proxy.url)
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
        store = _made(proxy.url)
        for key in (KEY, "idempotency:key"):
            if key == KEY:
                issue(store, key)
            won = claim(store, key)
            proxy.drop_reply(b"EVALSHA")
            assert store.settle(won, state=State.ISSUED, hold=0, ttl=0)
        assert proxy.dropped == 2


class TestDamage:
    """A damaged record is never run and never overwritten."""

    def good(self, store: RedisStore) -> list[bytes]:
        """Packed records of every state."""
        packed = []
        for n, (consume, state, result) in enumerate(
            [(False, None, None), (True, None, None), (False, State.DONE, b"123"), (False, State.FAILED, None)]
        ):
            key = f"idempotency:good{n}"
            issue(store, key)
            packed.append(raw(store, key))
            won = claim(store, key, fingerprint="f", consume=consume, takeover=not consume)
            packed.append(raw(store, key))
            if state is not None:
                assert store.settle(won, state=state, hold=0, ttl=60, result=result)
                packed.append(raw(store, key))
        key_claim = claim(store, "idempotency:key")
        packed.append(raw(store, key_claim.key))
        return packed

    def test_what_the_layout_says_is_what_the_scripts_write(self, store: RedisStore) -> None:
        for packed in self.good(store):
            assert layout.pack(layout.unpack(packed)) == packed

    def test_a_lost_or_doubled_byte_anywhere(self, redis_url: str) -> None:
        store = _made(redis_url)
        for packed in self.good(store):
            for n in range(len(packed)):
                self.is_seen(store, packed[:n] + packed[n + 1 :])
                self.is_seen(store, packed[:n] + packed[n : n + 1] + packed[n:])

    def test_another_byte_in_the_head(self, redis_url: str) -> None:
        store = _made(redis_url)
        for packed in self.good(store):
            for n in range(packed.index(b"\n") + 1):
                for other in b"x", b"-", b"\x00":
                    if packed[n : n + 1] != other:
                        self.is_seen(store, packed[:n] + other + packed[n + 1 :])

    @pytest.mark.parametrize(
        "packed",
        [
            b"",
            b"\n",
            b"1",
            b"free",
            b"\x00" * 60,
            b"2i01796061411798465,,24,,,\nNqfDK6MNMLTTgLN14Sd0mNFy",  # another layout
            b"1i0,,,,,\n",  # no end
            b"1i00000000000000000,,,,,\n",  # an end before all time
            b"1i0999999999999999,,,,,\n",  # a digit is missing
            b"1i0999999999999999999999999999999999999999999999999,,,,,\n",  # a token that is held
            b"1i19999999999999999,,,,,\n",  # a token with flags
            b"1i09999999999999999,,,,1,\nf",  # a token with a fingerprint
            b"1i09999999999999999,,,,,0\n",  # a token with a result
            b"1r099999999999999999999999999999999,1,,,,\na",  # running, held by nothing
            b"1r0" + b"9" * 80 + b",1,,,,\na",  # a moment too many
            b"1r0999999999999999999999999999999999999999999999998,1,,,,\na",  # held beyond its end
            b"1r0000000000000000100000000000000030000000000000002,1,,,,\na",  # the same, long ago
            b"1r0999999999999999919999999999999999,1,,,,\na",  # a lost digit must not read as free
            b"1r0999999999999999900000000000000019999999999999999,,,,,\n",  # running, nobody's
            b"1r4999999999999999900000000000000019999999999999999,1,,,,\na",  # running and consumed
            b"1d499999999999999999999999999999999,1,,,,1\nax",  # consumed, with a result
            b"1d499999999999999999999999999999999,4,,,,1\nannax",  # the same, of one who asks again
            b"1d099999999999999999999999999999999,,,,,\n",  # done by nobody
            b"1d09999999999999999,1,,,,\na",  # done without an end
            b"1d09999999999999999999999999999999999999999999999999999999999999999,1,,,,\na",  # done and held
            b"1d899999999999999999999999999999999,1,,,,\na",  # unknown flags
            b"1d099999999999999999999999999999999,1,,,,1234567890\na",  # a length beyond all bounds
            b"1r0000000000000000100000000000000029999999999999999,0000000001,,,,\na",  # one with ten digits
            b"1d099999999999999999999999999999999,1,,,,\nab",  # more than the lengths say
            b"1d099999999999999999999999999999999,3,,,,\nab",  # less
        ],
    )
    def test_what_cannot_be(self, packed: bytes, store: RedisStore) -> None:
        self.is_refused(store, packed)

    @pytest.mark.parametrize("kind", ["list", "hash", "set", "zset", "stream"])
    def test_a_value_of_another_type(self, kind: str, store: RedisStore) -> None:
        client = store._client
        put = {
            "list": ("RPUSH", KEY, "a"),
            "hash": ("HSET", KEY, "a", "b"),
            "set": ("SADD", KEY, "a"),
            "zset": ("ZADD", KEY, 1, "a"),
            "stream": ("XADD", KEY, "1-1", "a", "b"),
        }[kind]
        client.execute_command("DEL", KEY)
        client.execute_command(*put)
        self.nobody_may_use_it(store)
        assert client.execute_command("TYPE", KEY) == kind.encode()

    def test_a_text_that_is_no_text_is_damage_not_a_crash(self, store: RedisStore) -> None:
        claim(store, KEY)
        put(store, raw(store).replace(b"\nannab", b"\n\xff\xfe\xfd\xfcb"))
        answer = claim(store, KEY, "ben")
        assert (answer.verdict, answer.record) == (Verdict.DAMAGED, None)
        with pytest.raises(RecordInvalid):
            store.get(KEY)

    def test_it_can_be_removed_by_hand(self, store: RedisStore) -> None:
        put(store, b"damaged")
        assert list(store.scan()) == [KEY]
        assert store.delete(KEY)

    def is_seen(self, store: RedisStore, packed: bytes) -> None:
        """As :meth:`is_refused`, for many: only those who could do most harm ask."""
        with pytest.raises(RecordInvalid):
            layout.unpack(packed)
        put(store, packed)
        assert claim(store, owner="anna", fingerprint="f").verdict is Verdict.DAMAGED
        assert not store.settle(HAND_MADE, state=State.DONE, hold=30, ttl=60)
        assert raw(store) == packed

    def is_refused(self, store: RedisStore, packed: bytes) -> None:
        with pytest.raises(RecordInvalid):
            layout.unpack(packed)
        put(store, packed)
        self.nobody_may_use_it(store)
        assert raw(store) == packed

    def nobody_may_use_it(self, store: RedisStore) -> None:
        issue(store)
        for owner, must_exist, binding in product(("anna", "ben"), (True, False), ("b", "")):
            answer = claim(store, owner=owner, must_exist=must_exist, binding=binding, fingerprint="f")
            assert isinstance(answer, Holder)
            assert (answer.verdict, answer.record, answer.seconds_left) == (Verdict.DAMAGED, None, 0)
            assert answer.now > 1_700_000_000_000_000
        for state in State:
            assert not store.settle(HAND_MADE, state=state, hold=30, ttl=60)
        with pytest.raises(RecordInvalid):
            store.get(KEY)


HAND_MADE = Claim(KEY, Record(State.RUNNING, fence=DAY, held_until=DAY, expires_at=DAY, owner="anna"))


def raw(store: RedisStore, key: str = KEY) -> bytes:
    packed: bytes = store._client.execute_command("GET", key, NEVER_DECODE=True)
    return packed


def put(store: RedisStore, packed: bytes) -> None:
    store._client.execute_command("SET", KEY, packed, "PX", 60_000)


class TestExactTime:
    """The server drops by the millisecond; a record ends by the microsecond."""

    def put_expired(self, store: RedisStore, ago: int) -> Record:
        """A record that ended some microseconds ago, though the server still holds it."""
        seconds, micros = store._client.execute_command("TIME")
        end = int(seconds) * 1_000_000 + int(micros) - ago
        record = Record(State.ISSUED, expires_at=end, issued_until=end, binding="b")
        put(store, layout.pack(record))
        return record

    @pytest.mark.parametrize("ago", [1, 999, 5_000_000])
    def test_expired_is_absent_though_the_server_holds_it(self, ago: int, store: RedisStore) -> None:
        self.put_expired(store, ago)
        assert store.get(KEY) is None
        assert claim(store, must_exist=True).__class__.__name__ == "Absent"
        issue(store)
        assert isinstance(claim(store, must_exist=True), Claim)
        for step in (lambda: claim(store), lambda: store.settle(HAND_MADE, state=State.DONE, hold=0, ttl=60)):
            self.put_expired(store, ago)
            assert step()
            record = store.get(KEY)
            assert record is not None
            assert record.owner == "anna"

    def test_the_server_holds_it_to_the_end(self, redis_url: str) -> None:
        store = _made(redis_url)
        for n in range(20):
            issue(store, f"{n}", ttl=60.000001)
            record = store.get(f"{n}")
            assert record is not None
            assert store._client.execute_command("PEXPIRETIME", f"{n}") * 1000 >= record.expires_at

    def test_a_life_of_a_century_is_the_longest(self, store: RedisStore) -> None:
        issue(store, ttl=1e12)
        record = store.get(KEY)
        assert record is not None
        years = (record.expires_at / 1_000_000 - time.time()) / (365 * 86_400)
        assert 99.9 < years < 100.1
        assert isinstance(claim(store, lease=1e12, ttl=float("inf")), Claim)
        assert store.get(KEY) is not None


def test_a_fence_grows_though_the_servers_clock_is_set_back(clock_valkey: RedisServer) -> None:
    store = _made(clock_valkey.url)
    issue(store, ttl=86_400)
    first = claim(store, must_exist=True)
    assert store.settle(first, state=State.ISSUED, hold=0, ttl=0)
    clock_valkey.move_clock(-3600)
    second = claim(store, owner="ben", must_exist=True)
    assert second.fence == first.fence + 1


def test_a_day_passes_on_the_server(clock_valkey: RedisServer) -> None:
    store = _made(clock_valkey.url)
    won = claim(store, ttl=86_400)
    assert store.settle(won, state=State.DONE, hold=0, ttl=86_400, result=b"answer")
    clock_valkey.move_clock(86_390)
    assert claim(store, owner="ben").verdict is Verdict.DONE
    clock_valkey.move_clock(11)
    assert store.get(KEY) is None
    assert isinstance(claim(store, owner="ben"), Claim)


@pytest.mark.parametrize("size", [0, 1, 1024, 1024 * 1024])
def test_a_result_of_any_size_comes_back_with_the_refusal(size: int, store: RedisStore) -> None:
    result = secrets.token_bytes(size)
    assert complete(store, claim(store), result)
    answer = claim(store, owner="ben")
    assert answer.record.result == result
    assert replace(answer.record, result=None).result is None


@pytest.fixture(autouse=True)
def _hiredis_is_there() -> None:
    """Else "hiredis" in the names of tests above would be untrue."""
    import hiredis

    assert "hiredis" in sys.modules
    assert hiredis.__version__
