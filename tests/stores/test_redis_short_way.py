"""The short way through the scripts: what nearly every claim and completion meets is looked at once, and decided as the
rules behind it would."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from flask_idempotent.core.record import Absent, Claim, Record, State, Verdict
from flask_idempotent.stores.redis import RedisStore, layout
from flask_idempotent.stores.redis import store as module
from tests.servers import RedisServer
from tests.stores.redis_steps import KEY, claim, complete, put, raw

PAST = 1_700_000_000_000_000  # microseconds
NOW = 1_996_000_000_000_123  # ahead: what the server drops by its own clock outlives the test
TEXTS = {"binding": "b", "scene": "s", "fingerprint": "f"}
OTHER_BORDERS = [("a", "bc", "f"), ("abc", "", "f"), ("", "abc", "f"), ("a", "b", "cf")]


def issue(store: RedisStore, binding: str = "b", scene: str = "", ttl: float = 65) -> None:
    store.issue(KEY, binding=binding, scene=scene, ttl=ttl)


def done(flags: int = 0, *, moments: bytes = b"", scene: bytes = b"s", result: bytes | None = b"x") -> bytes:
    """A packed answer of anna's, recorded 50 seconds ago for a minute."""
    ago = round((time.time() - 50) * 1_000_000)
    sizes = layout.lengths(1, len(scene), 1, 4)
    size = b"" if result is None else b"%d" % len(result)
    moments = moments or b"%016d%016d%016d" % (ago, ago, 60_000_000)
    return b"1d%d%b,%b%bb%bfanna%b" % (flags, moments, size, sizes, scene, result or b"")


class TestLookedAtOnce:
    """Each other way looks twice, so this fails too when the short way is no longer taken."""

    @pytest.fixture
    def looks(self, store: RedisStore, redis_server: RedisServer) -> Callable[[], int]:
        client = redis_server.client()

        def since_then() -> int:
            counted = int(client.info("commandstats")["cmdstat_get"]["calls"])
            client.config_resetstat()
            return counted

        claim(store, "idempotency:other")  # the scripts are loaded, whoever ran before
        complete(store, claim(store, "idempotency:another"))
        client.config_resetstat()
        return since_then

    @pytest.mark.parametrize("scene", ["", "s"])
    @pytest.mark.parametrize("issued_for", ["", "s", None])
    @pytest.mark.parametrize(("result", "binding"), [(None, "b"), (b"", ""), (b"answer", "b")])
    def test_a_whole_life(
        self,
        result: bytes | None,
        binding: str,
        issued_for: str | None,
        scene: str,
        store: RedisStore,
        looks: Callable[[], int],
    ) -> None:
        if issued_for is not None and issued_for not in ("", scene):
            return
        texts = {**TEXTS, "scene": scene, "binding": binding}
        if issued_for is not None:
            issue(store, binding=binding, scene=issued_for)
        won = claim(store, must_exist=issued_for is not None, **texts)
        assert (won.record.scene, looks()) == (scene if issued_for is None else issued_for, 1)
        assert complete(store, won, result)
        assert looks() == 1
        shown = claim(store, owner="carl", must_exist=issued_for is not None, **texts)
        assert (shown.verdict, shown.record.result, looks()) == (Verdict.DONE, result, 1)
        assert (shown.record.owner, shown.record.fingerprint, shown.record.fence) == ("anna", "f", won.fence)

    @pytest.mark.parametrize("flags", range(4))
    def test_an_answer_whatever_became_of_it_on_the_way(
        self, flags: int, store: RedisStore, looks: Callable[[], int]
    ) -> None:
        put(store, done(flags))
        assert (claim(store, owner="carl", **TEXTS).verdict, looks()) == (Verdict.DONE, 1)

    def test_a_failure_is_written_at_once(self, store: RedisStore, looks: Callable[[], int]) -> None:
        issue(store)
        won = claim(store, **TEXTS)
        looks()
        assert store.settle(won, state=State.FAILED, hold=0, ttl=60, result=b"not kept")
        assert looks() == 1
        record = store.get(KEY)
        assert record is not None
        assert (record.state, record.result) == (State.FAILED, None)

    def test_a_token_that_is_not_there(self, store: RedisStore, looks: Callable[[], int]) -> None:
        assert isinstance(claim(store, must_exist=True), Absent)
        assert looks() == 1


class TestWhoseItIs:
    @pytest.mark.parametrize("settled", [False, True])
    @pytest.mark.parametrize(("binding", "scene", "fingerprint"), [*OTHER_BORDERS, ("xy", "c", "f"), ("ab", "d", "f")])
    def test_other_texts_and_other_borders_are_others(
        self, binding: str, scene: str, fingerprint: str, settled: bool, store: RedisStore
    ) -> None:
        """Lengths and texts are compared, and the same bytes may be cut in another way."""
        if settled:
            assert complete(store, claim(store, binding="ab", scene="c", fingerprint="f"))
        else:
            issue(store, binding="ab", scene="c")
        before = raw(store)
        answer = claim(store, owner="carl", binding=binding, scene=scene, fingerprint=fingerprint)
        assert (answer.verdict, raw(store)) == (Verdict.FOREIGN, before)

    @pytest.mark.parametrize("settled", [False, True])
    def test_nor_is_a_token_without_a_scene_anybodys(self, settled: bool, store: RedisStore) -> None:
        issue(store, binding="ab")
        if settled:
            assert complete(store, claim(store, binding="ab", scene="s", fingerprint="f"))
        before = raw(store)
        for binding in ("xy", "a", "abc", ""):
            answer = claim(store, owner="carl", binding=binding, scene="s", fingerprint="f")
            assert (answer.verdict, raw(store)) == (Verdict.FOREIGN, before)

    @pytest.mark.parametrize(
        "result", [b",1,1,1,4\nxsfanna", b"\nxsfanna", b"xsf", b",,1,1,1,4\nxsf", b"1i0%b,,1,1,,\nbs" % (b"9" * 16)]
    )
    def test_nothing_in_an_answer_is_taken_for_whose_it_is(self, result: bytes, store: RedisStore) -> None:
        assert complete(store, claim(store, **TEXTS), result)
        assert claim(store, owner="carl", **{**TEXTS, "binding": "x"}).verdict is Verdict.FOREIGN
        assert claim(store, owner="carl", **{**TEXTS, "fingerprint": "g"}).verdict is Verdict.REUSED
        assert claim(store, owner="carl", **TEXTS).record.result == result

    @pytest.mark.parametrize("letter", ["d", "i"])
    def test_nothing_in_a_text_is_taken_for_the_record(self, letter: str, store: RedisStore) -> None:
        moments = "9" * (48 if letter == "d" else 16)
        sizes = ",,1,1,,4\nbs" if letter == "d" else ",,1,1,,\nbs"
        claim(store, binding="b", scene="s", fingerprint=f"1{letter}0{moments}{sizes}")
        assert claim(store, owner="carl", binding="b", scene="s").verdict is Verdict.RUNNING


class TestHowLong:
    def test_the_server_keeps_a_token_to_its_own_end_and_a_key_for_its_life(
        self, store: RedisStore, redis_server: RedisServer
    ) -> None:
        client = redis_server.client()
        issue(store, ttl=600)
        assert claim(store, ttl=60, must_exist=True).record.issued_until
        assert 599_000 < client.pttl(KEY) <= 600_002
        client.delete(KEY)
        claim(store, ttl=90)
        assert 89_000 < client.pttl(KEY) <= 90_002

    @pytest.mark.parametrize("consume", [False, True])
    @pytest.mark.parametrize("ahead", [60_000_000, 60_000_001, 59_999_999, 1])
    def test_to_the_microsecond(
        self, ahead: int, consume: bool, store: RedisStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A claim lives to the token's end, but no shorter than two leases of 30 seconds."""
        stop_the_clock(monkeypatch)
        put(store, layout.pack(Record(State.ISSUED, expires_at=NOW + ahead, issued_until=NOW + ahead, binding="b")))
        record = claim(store, must_exist=True, consume=consume).record
        end = NOW + max(ahead, 60_000_000)
        assert (record.fence, record.expires_at, record.issued_until) == (NOW, end, NOW + ahead)
        assert record.held_until == (end if consume else NOW + 30_000_000)

    def test_an_end_that_is_now_has_passed(self, store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
        stop_the_clock(monkeypatch)
        for ahead, held in ((0, False), (1, True)):
            moments = b"%016d%016d%016d" % (NOW - 9, NOW - 60_000_000, 60_000_000 + ahead)
            put(store, done(moments=moments))
            answer = claim(store, owner="carl", must_exist=True, **TEXTS)
            assert answer.verdict is Verdict.DONE if held else isinstance(answer, Absent)
        put(store, layout.pack(Record(State.ISSUED, expires_at=NOW, issued_until=NOW, binding="b")))
        assert isinstance(claim(store, must_exist=True), Absent)


class TestTheRulesBehindIt:
    """They see what the short way leaves."""

    @pytest.mark.parametrize("flags", range(4))
    def test_a_lease_that_is_over(self, flags: int, store: RedisStore) -> None:
        moments = b"%016d%016d%016d%016d" % (PAST, PAST, 0, 9 * PAST // 8)
        put(store, b"1r%d%b,,1,1,1,4\nbsfanna" % (flags, moments))
        answer = claim(store, owner="carl", **TEXTS)
        if flags in (1, 3):
            assert (answer.verdict, answer.record.owner) == (Verdict.FAILED, "anna")
        else:
            assert (answer.owner, answer.taken) == ("carl", True)

    @pytest.mark.parametrize("flags", range(4))
    def test_an_owner_who_asks_again_after_a_failure(self, flags: int, store: RedisStore) -> None:
        put(store, done(flags, result=None).replace(b"1d", b"1f"))
        before = raw(store)
        assert (claim(store, **TEXTS).verdict, raw(store)) == (Verdict.FAILED, before)

    @pytest.mark.parametrize("flags", range(4))
    def test_an_effect_that_was_told_gets_its_answer(self, flags: int, store: RedisStore) -> None:
        put(store, done(flags, result=None))
        record = store.get(KEY)
        assert record is not None
        assert complete(store, Claim(KEY, record), b"answer")
        assert raw(store)[:3] == b"1d%d" % flags
        shown = store.get(KEY)
        assert shown is not None
        assert shown.result == b"answer"

    @pytest.mark.parametrize("result", [None, b"", b"answer"])
    @pytest.mark.parametrize("takeover", [True, False])
    def test_a_claim_that_was_extended(
        self, takeover: bool, result: bytes | None, store: RedisStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stop_the_clock(monkeypatch)
        won = claim(store, lease=30.000007, ttl=90.000001, takeover=takeover, **TEXTS)
        assert (won.record.held_until, won.record.expires_at) == (NOW + 30_000_007, NOW + 90_000_001)
        assert store.settle(won, state=State.RUNNING, hold=40.000007, ttl=90.000003)
        record = store.get(KEY)
        assert record is not None
        assert (record.held_until, record.expires_at) == (NOW + 40_000_007, NOW + 90_000_003)
        assert store.settle(won, state=State.DONE, hold=0, ttl=70.000009, result=result)
        record = store.get(KEY)
        assert record is not None
        assert (record.expires_at, record.result, record.takeover) == (NOW + 70_000_009, result, takeover)

    def test_a_token_that_was_given_back(self, store: RedisStore) -> None:
        issue(store, ttl=600)
        won = claim(store, **TEXTS)
        assert store.settle(won, state=State.ISSUED, hold=0, ttl=0)
        again = claim(store, owner="carl", **TEXTS).record
        assert again.expires_at == again.issued_until == won.record.issued_until
        assert again.fence > won.fence


class TestDamage:
    @pytest.mark.parametrize("moments", [b"9" * 47, b"9" * 49, b"9" * 32, b"9" * 80, b"0" * 48])
    def test_an_answer_without_whole_moments(self, moments: bytes, store: RedisStore) -> None:
        put(store, done(moments=moments))
        answer = claim(store, owner="carl", **TEXTS)
        assert (answer.verdict, answer.record) == (Verdict.DAMAGED, None)

    @pytest.mark.parametrize("moments", [b"9" * 15, b"9" * 17, b"0" * 16])
    def test_a_token_without_a_whole_end(self, moments: bytes, store: RedisStore) -> None:
        put(store, b"1i0" + moments + b",,1,,,\nb")
        assert claim(store, must_exist=True).verdict is Verdict.DAMAGED


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts find one time whenever they ask."""
    stands = b"{'%d', '%d'}" % divmod(NOW, 1_000_000)
    for name in ("_CLAIM", "_SETTLE"):
        body: Any = getattr(module, name).body
        assert body.count(b"redis.call('TIME')") == 2
        monkeypatch.setattr(module, name, module._Script.of(body.replace(b"redis.call('TIME')", stands)))
