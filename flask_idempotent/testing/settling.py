"""What every store must do when an owner settles its claim."""

from __future__ import annotations

from dataclasses import replace

from ..core.record import Claim, State, Verdict
from ..core.store import Store
from .steps import Steps


class SettlingContract(Steps):
    """What owners may do, and what they no longer may."""

    def test_a_token_that_is_restored_is_good_until_its_own_end(self, store: Store) -> None:
        key = self.token(store, ttl=50)
        end = self.kept(store, key).expires_at
        claim = self.won(store, key, binding="b", fingerprint="f", takeover=False)
        assert self.kept(store, key).expires_at > end  # two leases
        for _ in range(2):
            assert self.settled(store, claim, State.ISSUED)
            restored = self.kept(store, key)
            assert (restored.state, restored.expires_at, restored.held_until) == (State.ISSUED, end, 0)
            assert (restored.fingerprint, restored.takeover) == ("", True)
        later = self.won(store, key, "ben", binding="b", fingerprint="g")
        assert later.fence > claim.fence
        assert not later.taken

    def test_a_token_that_is_restored_after_its_end_is_gone(self, store: Store) -> None:
        key = self.token(store, ttl=50)
        claim = self.won(store, key, binding="b")
        self.advance(store, key, 51)
        assert self.settled(store, claim, State.ISSUED)
        assert store.get(key) is None

    def test_a_key_that_is_restored_is_deleted(self, store: Store) -> None:
        key = self.new_key()
        claim = self.won(store, key, fingerprint="f")
        assert self.settled(store, claim, State.ISSUED)
        assert store.get(key) is None
        assert self.settled(store, claim, State.ISSUED)
        self.won(store, key, "ben", fingerprint="g")

    def test_an_owner_that_was_taken_over_can_do_nothing(self, store: Store) -> None:
        key = self.token(store)
        first = self.won(store, key, binding="b")
        self.advance(store, key, self.LEASE)
        second = self.won(store, key, "ben", binding="b")
        for state in State:
            assert not self.settled(store, first, state, b"late" if state is State.DONE else None)
        assert self.kept(store, key) == second.record
        assert self.settled(store, second, State.DONE, b"right")
        assert not self.settled(store, first, State.DONE, b"late")
        assert self.kept(store, key).result == b"right"

    def test_a_late_owner_whom_nobody_challenged_may_settle(self, store: Store) -> None:
        for state in State:
            key = self.token(store)
            claim = self.won(store, key, binding="b")
            self.advance(store, key, self.LEASE + 1)
            assert self.settled(store, claim, state)
            assert self.kept(store, key).state is state

    def test_a_heartbeat_holds_the_claim(self, store: Store) -> None:
        key = self.new_key()
        claim = self.won(store, key)
        for _ in range(3):
            self.advance(store, key, self.LEASE - 1)
            before = self.kept(store, key)
            assert self.settled(store, claim, State.RUNNING)
            after = self.kept(store, key)
            assert after.held_until > before.held_until
            assert (after.fence, after.owner) == (claim.fence, "anna")
            assert after.expires_at >= max(before.expires_at, after.held_until)
        assert self.refused(store, key).verdict is Verdict.RUNNING

    def test_done_keeps_its_first_result(self, store: Store) -> None:
        key = self.new_key()
        claim = self.won(store, key)
        assert self.settled(store, claim, State.DONE)
        assert self.kept(store, key).result is None
        for state in (State.ISSUED, State.RUNNING, State.FAILED):
            assert not self.settled(store, claim, state)
        assert self.settled(store, claim, State.DONE, b"answer")
        done = self.kept(store, key)
        assert self.settled(store, claim, State.DONE, b"answer")
        assert self.settled(store, claim, State.DONE)
        assert not self.settled(store, claim, State.DONE, b"another")
        for state in (State.ISSUED, State.RUNNING, State.FAILED):
            assert not self.settled(store, claim, state)
        assert self.kept(store, key) == done

    def test_failed_stays_failed(self, store: Store) -> None:
        key = self.token(store)
        claim = self.won(store, key, binding="b")
        assert self.settled(store, claim, State.FAILED)
        assert self.settled(store, claim, State.FAILED)
        for state in (State.ISSUED, State.RUNNING, State.DONE):
            assert not self.settled(store, claim, state)
        self.advance(store, key, self.LEASE + 1)
        assert self.refused(store, key, binding="b").verdict is Verdict.FAILED

    def test_consumed_is_done_at_once_and_only_given_back_or_failed(self, store: Store) -> None:
        for state, allowed in ((State.ISSUED, True), (State.FAILED, True), (State.RUNNING, False)):
            key = self.token(store)
            claim = self.won(store, key, binding="b", consume=True)
            assert claim.record.consumed
            assert self.refused(store, key, binding="b").verdict is Verdict.DONE
            assert not self.settled(store, claim, State.DONE, b"answer")
            assert self.settled(store, claim, State.DONE)
            assert self.settled(store, claim, state) is allowed
            record = self.kept(store, key)
            assert record.state is (state if allowed else State.DONE)
            assert record.consumed is not allowed

    def test_an_effect_is_recorded_though_its_record_is_gone(self, store: Store) -> None:
        for state in (State.DONE, State.FAILED):
            key = self.new_key()
            claim = self.won(store, key, binding="b", scene="s", fingerprint="f", takeover=False)
            self.advance(store, key, self.TTL)
            assert self.settled(store, claim, state, b"answer" if state is State.DONE else None)
            record = self.kept(store, key)
            assert (record.state, record.owner, record.fence) == (state, "anna", claim.fence)
            assert (record.binding, record.scene, record.fingerprint) == ("b", "s", "f")
            assert record.held_until == record.expires_at

    def test_to_restore_or_extend_what_is_gone_occupies_nothing(self, store: Store) -> None:
        for state in (State.ISSUED, State.RUNNING):
            key = self.new_key()
            claim = self.won(store, key)
            self.advance(store, key, self.TTL)
            assert self.settled(store, claim, state)
            assert store.get(key) is None

    def test_an_effect_is_recorded_though_the_store_went_back_to_before_its_claim(self, store: Store) -> None:
        for state in (State.DONE, State.FAILED):
            for restored in (False, True):
                key = self.token(store)
                older = self.won(store, key, binding="b", fingerprint="f")
                assert not restored or self.settled(store, older, State.ISSUED)
                before, lost = self.kept(store, key), lost_claim(older)
                for unheard in (State.ISSUED, State.RUNNING):
                    assert not self.settled(store, lost, unheard)
                assert self.kept(store, key) == before
                assert self.settled(store, lost, state, b"answer")
                record = self.kept(store, key)
                assert (record.state, record.owner, record.fence) == (state, "late", lost.fence)
                assert (record.binding, record.fingerprint, record.taken) == ("b", "f", True)
                assert record.result == (b"answer" if state is State.DONE else None)
                assert self.settled(store, lost, state)
                assert not self.settled(store, older, state)
                assert self.kept(store, key) == record

    def test_a_token_that_was_issued_again_after_its_end_learns_of_the_effect(self, store: Store) -> None:
        key = self.token(store)
        claim = self.won(store, key, binding="b")
        self.advance(store, key, self.TTL)
        store.issue(key, binding="b", scene="", ttl=self.TTL)
        assert self.settled(store, claim, State.DONE, b"answer")
        assert self.refused(store, key, binding="b").verdict is Verdict.DONE

    def test_what_is_settled_stays_so_though_the_store_lost_a_later_claim(self, store: Store) -> None:
        for end in (State.DONE, State.FAILED, None):
            key = self.token(store)
            older = self.won(store, key, binding="b", consume=end is None)
            assert end is None or self.settled(store, older, end)
            before = self.kept(store, key)
            for state in State:
                assert not self.settled(store, lost_claim(older), state)
            assert self.kept(store, key) == before

    def test_a_lost_claim_that_is_not_later_changes_nothing(self, store: Store) -> None:
        key = self.new_key()
        claim = self.won(store, key)
        for state in State:
            assert not self.settled(store, lost_claim(claim, later=0), state)
        assert self.kept(store, key) == claim.record

    def test_only_what_is_done_keeps_a_result(self, store: Store) -> None:
        for state in (State.ISSUED, State.RUNNING, State.FAILED):
            key = self.token(store)
            claim = self.won(store, key, binding="b")
            for _ in range(2):
                assert self.settled(store, claim, state, b"answer")
                assert (self.kept(store, key).state, self.kept(store, key).result) == (state, None)


def lost_claim(older: Claim, later: int = 1) -> Claim:
    """Return a claim of the same key that the store does not have (any more): by a failover, say.

    :param later: by how much its fence is higher.
    """
    return Claim(older.key, replace(older.record, owner="late", fence=older.fence + later, taken=True))
