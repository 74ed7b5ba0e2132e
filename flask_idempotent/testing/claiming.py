"""What every store must do when something is issued or claimed."""

from __future__ import annotations

from typing import Any

from ..core.record import MICROSECONDS, Absent, State, Verdict
from ..core.store import Store
from .steps import Steps


class ClaimingContract(Steps):
    """Tokens, claims, refusals and lives."""

    def test_a_token_is_claimed_by_whom_it_was_issued_to(self, store: Store) -> None:
        key = self.token(store, binding="b", scene="order.create")
        claim = self.won(store, key, must_exist=True, binding="b", scene="order.create", fingerprint="f")
        record = self.kept(store, key)
        assert record == claim.record
        assert (claim.key, claim.owner, claim.taken) == (key, "anna", False)
        assert (record.state, record.fingerprint, record.result) == (State.RUNNING, "f", None)
        assert record.held_until - record.fence == self.LEASE * MICROSECONDS
        assert record.expires_at == record.issued_until

    def test_what_was_never_issued_is_absent_and_stays_so(self, store: Store) -> None:
        key = self.new_key()
        assert self.ask(store, key, must_exist=True) == Absent()
        assert store.get(key) is None

    def test_a_late_copy_of_issue_changes_nothing(self, store: Store) -> None:
        key = self.token(store, binding="b", ttl=100)
        before = self.kept(store, key)
        store.issue(key, binding="other", scene="other", ttl=500)
        assert self.kept(store, key) == before
        claim = self.won(store, key, binding="b")
        assert self.settled(store, claim, State.DONE)
        store.issue(key, binding="b", scene="", ttl=100)
        assert self.kept(store, key).state is State.DONE

    def test_a_token_without_scene_fits_any(self, store: Store) -> None:
        self.won(store, self.token(store), binding="b", scene="order.create")

    def test_a_stranger_changes_nothing(self, store: Store) -> None:
        key = self.token(store, binding="b", scene="order.create")
        before = self.kept(store, key)
        for stranger in ({"binding": "c", "scene": "order.create"}, {"binding": "b", "scene": "x"}, {"scene": "x"}):
            assert self.refused(store, key, must_exist=True, **stranger).verdict is Verdict.FOREIGN
        assert self.kept(store, key) == before

    def test_rules_are_asked_in_their_order(self, store: Store) -> None:
        key = self.token(store, scene="s")
        claim = self.won(store, key, binding="b", scene="s", fingerprint="f")
        mine: dict[str, Any] = {"binding": "b", "scene": "s", "fingerprint": "f"}
        for state, verdict in ((State.RUNNING, Verdict.RUNNING), (State.DONE, Verdict.DONE)):
            assert self.settled(store, claim, state)
            for owner in ("ben", "anna") if state is State.DONE else ("ben",):
                assert self.refused(store, key, owner, **mine).verdict is verdict
                assert self.refused(store, key, owner, binding="b", scene="s").verdict is verdict
                assert self.refused(store, key, owner, **mine | {"fingerprint": "g"}).verdict is Verdict.REUSED
                foreign = self.refused(store, key, owner, **mine | {"fingerprint": "g", "binding": "c"})
                assert foreign.verdict is Verdict.FOREIGN

    def test_a_refusal_shows_the_record_and_the_time_left(self, store: Store) -> None:
        key = self.new_key()
        claim = self.won(store, key)
        holder = self.refused(store, key)
        assert holder.record == claim.record
        assert 0 < holder.seconds_left <= self.LEASE
        assert self.settled(store, claim, State.DONE, b"answer")
        holder = self.refused(store, key)
        assert holder.record is not None
        assert (holder.record.result, holder.seconds_left) == (b"answer", 0)

    def test_an_owner_who_asks_again_has_its_claim_again(self, store: Store) -> None:
        for consume in (False, True):
            key = self.token(store)
            first = self.won(store, key, binding="b", consume=consume)
            assert self.won(store, key, binding="b", consume=consume) == first
            assert self.refused(store, key, binding="b").verdict.value == first.record.state.value

    def test_an_owner_claims_once(self, store: Store) -> None:
        key = self.token(store)
        assert self.settled(store, self.won(store, key, binding="b"), State.ISSUED)
        assert self.refused(store, key, "anna", binding="b").verdict is Verdict.RUNNING
        assert self.kept(store, key).state is State.ISSUED
        assert self.settled(store, self.won(store, key, "ben", binding="b"), State.DONE)
        assert self.refused(store, key, "ben", binding="b").verdict is Verdict.DONE
        key = self.new_key()
        assert self.settled(store, self.won(store, key), State.FAILED)
        assert self.refused(store, key, "anna").verdict is Verdict.FAILED

    def test_a_claim_is_taken_over_when_its_lease_is_over(self, store: Store) -> None:
        key = self.new_key()
        first = self.won(store, key, fingerprint="f")
        self.advance(store, key, self.LEASE - 1)
        assert self.refused(store, key, fingerprint="f").verdict is Verdict.RUNNING
        self.advance(store, key, 1)
        assert self.refused(store, key, fingerprint="g").verdict is Verdict.REUSED
        second = self.won(store, key, "ben", fingerprint="f")
        assert second.taken
        assert second.fence > first.fence

    def test_a_claim_with_restore_off_is_never_taken_over(self, store: Store) -> None:
        key = self.new_key()
        claim = self.won(store, key, takeover=False)
        assert self.refused(store, key).verdict is Verdict.RUNNING
        self.advance(store, key, self.LEASE + 1)
        assert self.refused(store, key).verdict is Verdict.FAILED
        record = self.kept(store, key)
        assert (record.state, record.owner, record.fence) == (State.RUNNING, "anna", claim.fence)
        assert self.settled(store, claim, State.DONE)

    def test_expired_is_absent(self, store: Store) -> None:
        key = self.token(store, ttl=100)
        self.advance(store, key, 100)
        assert store.get(key) is None
        assert self.ask(store, key, must_exist=True, binding="b") == Absent()
        store.issue(key, binding="again", scene="", ttl=100)
        assert self.kept(store, key).binding == "again"
        self.advance(store, key, 100)
        self.won(store, key, "ben", binding="anyone")

    def test_a_key_lives_for_its_ttl_counted_anew_from_completion(self, store: Store) -> None:
        key = self.new_key()
        claim = self.won(store, key, ttl=100)
        assert claim.record.expires_at - claim.fence == 100 * MICROSECONDS
        self.advance(store, key, 90)
        assert store.settle(claim, state=State.DONE, hold=0, ttl=100, result=b"answer")
        done = self.kept(store, key)
        assert done.held_until == done.expires_at
        self.advance(store, key, 99)
        assert self.refused(store, key).verdict is Verdict.DONE
        self.advance(store, key, 1)
        self.won(store, key, "ben")

    def test_a_claim_lives_for_two_leases_at_least(self, store: Store) -> None:
        claim = self.won(store, self.new_key(), lease=300, ttl=1)
        assert claim.record.expires_at - claim.fence == 600 * MICROSECONDS

    def test_any_text_and_any_bytes_come_back(self, store: Store) -> None:
        texts = ("", "a", "\n", "1,2,\n", "\x00", "ü€😀", "'; --", "%s{}[]*", "x" * 5_000)
        for text in texts:
            key = self.token(store, binding=text, scene=text)
            owner = text or "anna"
            claim = self.won(store, key, owner, binding=text, scene=text, fingerprint=text)
            for result in (b"", bytes(range(256)) * 50, b"1d0,,,\n", text.encode()):
                again = self.won(store, self.new_key(), owner, binding=text, scene=text, fingerprint=text)
                assert self.settled(store, again, State.DONE, result)
                record = self.kept(store, again.key)
                assert record.result == result
                assert (record.owner, record.binding, record.scene, record.fingerprint) == (owner, text, text, text)
            assert self.kept(store, key) == claim.record
