"""A damaged record in Redis is never run and never overwritten."""

from __future__ import annotations

from itertools import product

import pytest
from redis.exceptions import ResponseError

from flask_idempotent.core.errors import RecordInvalid, StoreUnavailable
from flask_idempotent.core.record import Claim, Holder, Record, State, Verdict
from flask_idempotent.stores.redis import RedisStore, layout
from tests.servers import RedisServer
from tests.stores.redis_steps import KEY, claim, issue, made, put, raw

NONE, SOON, FAR = b"0000000000000000", b"0000000000000001", b"9999999999999999"
HAND_MADE = Claim(KEY, Record(State.RUNNING, fence=1_000_000, held_until=1_000_000, expires_at=1_000_000, owner="anna"))


class TestDamage:
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
            assert layout.unpack(layout.pack(layout.unpack(packed))) == layout.unpack(packed)
            assert len(layout.pack(layout.unpack(packed))) == len(packed)

    def test_a_lost_or_doubled_byte_anywhere(self, redis_url: str) -> None:
        store = made(redis_url)
        for packed in self.good(store):
            for n in range(len(packed)):
                self.is_seen(store, packed[:n] + packed[n + 1 :])
                self.is_seen(store, packed[:n] + packed[n : n + 1] + packed[n:])

    def test_another_byte_in_the_head(self, redis_url: str) -> None:
        store = made(redis_url)
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
            b"1i0" + 3 * FAR + b",,,,,\n",  # a token that is held
            b"1i1" + FAR + b",,,,,\n",  # a token with flags
            b"1i0" + FAR + b",,,,1,\nf",  # a token with a fingerprint
            b"1i0" + FAR + b",0,,,,\n",  # a token with a result
            b"1r0" + 3 * FAR + b",,,,,1\na",  # running, held by nothing
            b"1r0" + 6 * FAR + b",,,,,1\na",  # a moment too many
            b"1r0" + FAR + FAR + NONE + b"9999999999999998,,,,,1\na",  # held beyond its end
            b"1r0" + FAR + NONE + FAR + b"9999999999999998,,,,,1\na",  # the same, by its span
            b"1r0" + SOON + b"0000000000000002" + SOON + b"0000000000000002,,,,,1\na",  # the same, long ago
            b"1r0" + FAR + SOON + NONE + b"999999999999999,,,,,1\na",  # a lost digit must not read as free
            b"1r0" + FAR + SOON + NONE + FAR + b",,,,,\n",  # running, nobody's
            b"1r4" + FAR + SOON + NONE + FAR + b",,,,,1\na",  # running and consumed
            b"1d4" + FAR + FAR + NONE + b",1,,,,1\nax",  # consumed, with a result
            b"1d4" + FAR + FAR + NONE + b",1,,,,4\nannax",  # the same, of one who asks again
            b"1d0" + FAR + FAR + NONE + b",,,,,\n",  # done by nobody
            b"1d0" + FAR + b",,,,,1\na",  # done without an end
            b"1d0" + FAR + FAR + b",,,,,1\na",  # done without a span
            b"1d0" + FAR + NONE + NONE + b",,,,,1\na",  # done until before all time
            b"1d0" + 5 * FAR + b",,,,,1\na",  # done and held
            b"1d8" + FAR + FAR + NONE + b",,,,,1\na",  # unknown flags
            b"1d8" + FAR + FAR + NONE + b",,,,,4\nanna",  # the same, of one who asks again
            b"1d0" + FAR + FAR + NONE + b",1234567890,,,,1\na",  # a length beyond all bounds
            b"1d0" + FAR + FAR + NONE + b",0000000000,,,,4\nanna",  # one with ten digits, of one who asks again
            b"1r0" + SOON + SOON + NONE + FAR + b",,0000000000,,,1\na",
            b"1r0" + SOON + SOON + NONE + FAR + b",,,0000000000,,1\na",
            b"1r0" + SOON + SOON + NONE + FAR + b",,,,0000000000,1\na",
            b"1r0" + SOON + SOON + NONE + FAR + b",,,,,0000000001\na",
            b"1d0" + FAR + FAR + NONE + b",,,,,1\nab",  # more than the lengths say
            b"1d0" + FAR + FAR + NONE + b",,,,,3\nab",  # less
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

    def test_an_error_of_the_server_is_no_damage(self, valkey: RedisServer) -> None:
        """Else an operator whose rule forbids GET would be told that every record is damaged."""
        valkey.control.execute_command("ACL", "SETUSER", "poor", "on", ">secret", "~*", "+@all", "-get")
        store = made(valkey.url.replace("//", "//poor:secret@"))
        try:
            for ask in (lambda: claim(store), lambda: store.get(KEY)):
                with pytest.raises((ResponseError, StoreUnavailable)):
                    ask()
        finally:
            valkey.control.execute_command("ACL", "DELUSER", "poor")

    def test_a_text_that_is_no_text_is_damage_not_a_crash(self, store: RedisStore) -> None:
        claim(store, KEY)
        put(store, raw(store).replace(b"anna", b"\xff\xfe\xfd\xfc"))
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
