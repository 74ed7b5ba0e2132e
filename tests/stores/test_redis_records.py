"""The Redis store's records: size, life, time to the microsecond, results."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace

import pytest

from flask_idempotent.core.keys import digest, store_key, token_digest
from flask_idempotent.core.record import Absent, Claim, Record, State, Verdict
from flask_idempotent.stores.redis import RedisStore, layout
from tests.servers import RedisServer
from tests.stores.aging import age
from tests.stores.redis_steps import KEY, claim, complete, issue, made, put

PAST = 1_700_000_000_000_000  # microseconds
HAND_MADE = Claim(KEY, Record(State.RUNNING, fence=1_000_000, held_until=1_000_000, expires_at=1_000_000, owner="anna"))


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

    def test_so_is_a_token_that_is_done(self, store: RedisStore) -> None:
        issued = self.put_expired(store, 1)
        done = replace(issued, state=State.DONE, fence=7, held_until=issued.expires_at, owner="anna")
        put(store, layout.pack(done))
        assert store.get(KEY) is None

    def test_the_server_holds_it_to_the_end(self, redis_url: str) -> None:
        store = made(redis_url)
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
    store = made(clock_valkey.url)
    issue(store, ttl=86_400)
    first = claim(store, must_exist=True)
    assert store.settle(first, state=State.ISSUED, hold=0, ttl=0)
    clock_valkey.move_clock(-3600)
    second = claim(store, owner="ben", must_exist=True)
    assert second.fence == first.fence + 1


def test_a_day_passes_on_the_server(clock_valkey: RedisServer) -> None:
    store = made(clock_valkey.url)
    won = claim(store, ttl=86_400)
    assert store.settle(won, state=State.DONE, hold=0, ttl=86_400, result=b"answer")
    clock_valkey.move_clock(86_390)
    assert claim(store, owner="ben").verdict is Verdict.DONE
    clock_valkey.move_clock(11)
    assert store.get(KEY) is None
    assert isinstance(claim(store, owner="ben"), Claim)


PAST = 1_700_000_000_000_000


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("takeover", [True, False])
@pytest.mark.parametrize("consume", [True, False])
def test_how_it_was_claimed_is_read_as_it_was_written_until_it_is_restored(
    consume: bool, takeover: bool, taken: bool, store: RedisStore
) -> None:
    issue(store)
    if taken:
        claim(store, lease=30)
        age(store._client, KEY, 31)
    asked = {"owner": "ben", "consume": consume, "takeover": takeover, "must_exist": taken}
    won = claim(store, **asked)
    record = store.get(KEY)
    assert record is not None
    assert record == won.record
    assert (record.consumed, record.takeover, record.taken) == (consume, takeover, taken)
    assert claim(store, **asked) == won
    if not consume:
        assert store.settle(won, state=State.RUNNING, hold=30, ttl=60)  # reads it and writes it again
        extended = store.get(KEY)
        assert extended is not None
        assert (extended.consumed, extended.takeover, extended.taken) == (consume, takeover, taken)
    assert store.settle(won, state=State.ISSUED, hold=0, ttl=60)
    restored = store.get(KEY)
    assert restored is not None
    assert (restored.consumed, restored.takeover, restored.taken) == (False, True, False)


def test_what_a_step_does_not_change_stays_as_it_was(store: RedisStore) -> None:
    won = claim(store, scene="a scene", fingerprint="a print")
    steps: list[tuple[State, bytes | None]] = [
        (State.RUNNING, None),
        (State.DONE, None),
        (State.DONE, b"answer"),
        (State.DONE, b"answer"),
    ]
    for state, result in steps:  # each reads the record and writes it again, but the last
        assert store.settle(won, state=state, hold=30, ttl=60, result=result)
        record = store.get(KEY)
        assert record is not None
        moments = {"held_until": record.held_until, "expires_at": record.expires_at}
        assert record == replace(won.record, state=state, result=result, **moments)
    assert not store.settle(won, state=State.DONE, hold=30, ttl=60, result=b"other")
    assert claim(store, owner="ben", scene="a scene", fingerprint="a print").verdict is Verdict.DONE


@pytest.mark.parametrize("state", [State.RUNNING, State.ISSUED, State.DONE, State.FAILED])
def test_small_numbers_keep_their_width(state: State, store: RedisStore) -> None:
    """A fence of a clock that showed 1970; a token's end is as short only where it no longer counts."""
    end = round(time.time() + 60) * 1_000_000
    issued = end if state is State.ISSUED else 9
    claimed = Record(State.RUNNING, fence=7, held_until=8, expires_at=end, issued_until=issued, owner="anna")
    put(store, layout.pack(claimed))
    assert store.settle(Claim(KEY, claimed), state=state, hold=1, ttl=60)
    record = store.get(KEY)
    assert record is not None
    assert (record.state, record.fence, record.issued_until) == (state, 7, issued)


@pytest.mark.parametrize("result", [b"", b"answer"])
def test_a_length_may_have_nine_digits(result: bytes, store: RedisStore) -> None:
    end = b"%d" % (round(time.time() + 60) * 1_000_000)
    lengths = b"00000000%d,000000001,000000001,000000001,000000004" % len(result)
    put(store, b"1d0" + end + end + b"0" * 16 + b"," + lengths + b"\nbsfanna" + result)
    assert claim(store, owner="ben", scene="s").verdict is Verdict.DONE
    assert claim(store, owner="ben", scene="s", fingerprint="g").verdict is Verdict.REUSED
    record = store.get(KEY)
    assert record is not None
    assert record.result == result


def test_an_extension_shortens_no_life(store: RedisStore) -> None:
    won = claim(store, ttl=60)
    assert store.settle(won, state=State.RUNNING, hold=1, ttl=1)
    record = store.get(KEY)
    assert record is not None
    assert record.expires_at == won.record.expires_at


@pytest.mark.parametrize("takeover", [True, False])
def test_what_was_consumed_and_failed_was_taken_over_by_nobody(takeover: bool, store: RedisStore) -> None:
    won = claim(store, consume=True, takeover=takeover)
    assert store.settle(won, state=State.FAILED, hold=0, ttl=60)
    record = store.get(KEY)
    assert record is not None
    assert (record.taken, record.takeover, record.consumed) == (False, takeover, False)


@pytest.mark.parametrize("size", [0, 1, 1024, 1024 * 1024])
def test_a_result_of_any_size_comes_back_with_the_refusal(size: int, store: RedisStore) -> None:
    result = secrets.token_bytes(size)
    assert complete(store, claim(store), result)
    answer = claim(store, owner="ben")
    assert answer.record.result == result
    assert replace(answer.record, result=None).result is None


@pytest.mark.parametrize("scene", ["", "s"])
def test_a_token_without_a_scene_stays_so(scene: str, store: RedisStore) -> None:
    store.issue(KEY, binding="b", scene="", ttl=600)
    won = claim(store, binding="b", scene=scene, fingerprint="f", must_exist=True)
    assert (won.record.scene, won.record.binding, won.record.fingerprint) == ("", "b", "f")
    assert store.settle(won, state=State.DONE, hold=0, ttl=60, result=b"answer")
    for other in ("", "s", "t"):
        assert claim(store, owner="ben", binding="b", scene=other, fingerprint="f").verdict is Verdict.DONE
    assert claim(store, owner="ben", binding="b", scene="s", fingerprint="g").verdict is Verdict.REUSED


@pytest.mark.parametrize("back", [1_000, 1])
@pytest.mark.parametrize("issued", [False, True])
@pytest.mark.parametrize("span", [0, 60_000_000])
def test_an_answer_whose_end_has_passed_is_absent_while_the_server_still_has_it(
    span: int, issued: bool, back: int, store: RedisStore
) -> None:
    """The server drops by the millisecond, and a little late."""
    end = round(time.time() * 1_000_000) - back
    moments = b"%016d%016d%016d" % (end - span - 5, end - span, span) + (b"%016d" % (end - 9) if issued else b"")
    put(store, b"1d0" + moments + b",1,1,1,1,4\nbsfannax")
    assert store.get(KEY) is None
    assert isinstance(claim(store, owner="carl", scene="s", fingerprint="f", must_exist=True), Absent)
    won = claim(store, owner="carl", scene="s", fingerprint="f")
    assert (won.owner, won.taken, won.record.issued_until) == ("carl", False, 0)


@pytest.mark.parametrize("owner", ["anna", "ben"])
def test_a_token_whose_end_has_passed_is_absent_while_the_server_still_has_it(owner: str, store: RedisStore) -> None:
    put(store, layout.pack(Record(State.ISSUED, expires_at=PAST, issued_until=PAST, binding="b")))
    assert isinstance(claim(store, owner=owner, must_exist=True), Absent)
    assert claim(store, owner=owner).record.issued_until == 0
