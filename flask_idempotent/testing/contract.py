"""The whole contract of a store."""

from __future__ import annotations

from ..core.record import Absent, Claim, Holder, State, Verdict
from ..core.store import AdminStore, Store
from .claiming import ClaimingContract
from .settling import SettlingContract
from .steps import THREADS, at_once


class StoreContract(ClaimingContract, SettlingContract):
    """What every store must do, as tests of pytest: inherit it, add a fixture ``store`` and
    :meth:`~flask_idempotent.testing.steps.Steps.advance`.

    The store may hold other records; every test uses keys of its own.
    """

    def test_one_of_many_wins_a_new_key(self, store: Store) -> None:
        self.one_wins(store, self.new_key())

    def test_one_of_many_wins_a_token(self, store: Store) -> None:
        self.one_wins(store, self.token(store))

    def test_one_of_many_wins_what_was_given_back(self, store: Store) -> None:
        for key in (self.new_key(), self.token(store)):
            assert self.settled(store, self.won(store, key, "first", binding="b"), State.ISSUED)
            self.one_wins(store, key)

    def test_one_of_many_wins_what_was_abandoned(self, store: Store) -> None:
        for key in (self.new_key(), self.token(store)):
            self.won(store, key, "first", binding="b")
            self.advance(store, key, self.LEASE)
            assert self.one_wins(store, key).taken

    def test_doubled_commands_of_many_owners_run_one(self, store: Store) -> None:
        key = self.token(store)

        def ask(number: int) -> Claim | Holder | Absent:
            return self.ask(store, key, f"owner {number % 2}", binding="b")

        claims = [answer for answer in at_once(ask) if isinstance(answer, Claim)]
        assert len(claims) == THREADS // 2
        assert all(claim == claims[0] for claim in claims)

    def one_wins(self, store: Store, key: str) -> Claim:
        """Let many claim at once, and insist on one winner."""

        def ask(number: int) -> Claim | Holder | Absent:
            return self.ask(store, key, f"owner {number}", binding="b")

        answers = at_once(ask)
        claims = [answer for answer in answers if isinstance(answer, Claim)]
        verdicts = {answer.verdict for answer in answers if isinstance(answer, Holder)}
        assert (len(claims), verdicts) == (1, {Verdict.RUNNING})
        assert self.kept(store, key) == claims[0].record
        return claims[0]


class AdminStoreContract(StoreContract):
    """The same, with what the command line needs."""

    def test_scan_shows_the_live_records(self, store: AdminStore) -> None:
        keys = {self.token(store), self.token(store), self.new_key()}
        for key in keys:
            self.ask(store, key, binding="b")
        gone = self.token(store, ttl=10)
        self.advance(store, gone, 11)
        found = set(store.scan())
        assert keys <= found
        assert gone not in found

    def test_delete_says_whether_there_was_one(self, store: AdminStore) -> None:
        key = self.token(store)
        assert store.delete(key)
        assert not store.delete(key)
        assert store.get(key) is None

    def test_purge_leaves_the_living(self, store: AdminStore) -> None:
        key = self.token(store)
        assert store.purge() >= 0
        assert self.kept(store, key).state is State.ISSUED
