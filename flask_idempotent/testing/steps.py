"""The steps of which the contract's tests are made."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from ..core.record import Absent, Claim, Holder, Record, State
from ..core.store import Store

THREADS = 8


class Steps:
    """What the tests of the contract do to a store."""

    LEASE = 30.0
    TTL = 600.0

    def advance(self, store: Any, key: str, seconds: float) -> None:
        """Let time pass for the record under the key, at least.

        :param seconds: how long.
        """
        raise NotImplementedError("say how the store's time is moved")

    def new_key(self) -> str:
        """Return a key that no other test uses."""
        return f"idempotency:{secrets.token_urlsafe(18)}"

    def token(self, store: Store, *, binding: str = "b", scene: str = "", ttl: float = TTL) -> str:
        """Issue a token; return its key."""
        key = self.new_key()
        store.issue(key, binding=binding, scene=scene, ttl=ttl)
        return key

    def ask(self, store: Store, key: str, owner: str = "anna", **options: Any) -> Claim | Holder | Absent:
        """Claim with the usual lease and life."""
        return store.claim(key, owner=owner, **{"lease": self.LEASE, "ttl": self.TTL, **options})

    def won(self, store: Store, key: str, owner: str = "anna", **options: Any) -> Claim:
        """Claim, and insist on getting it."""
        answer = self.ask(store, key, owner, **options)
        assert isinstance(answer, Claim), answer
        return answer

    def refused(self, store: Store, key: str, owner: str = "ben", **options: Any) -> Holder:
        """Claim, and insist on a refusal with a record."""
        answer = self.ask(store, key, owner, **options)
        assert isinstance(answer, Holder), answer
        return answer

    def settled(self, store: Store, claim: Claim, state: State, result: bytes | None = None) -> bool:
        """Settle with the usual lease and life."""
        return store.settle(claim, state=state, hold=self.LEASE, ttl=self.TTL, result=result)

    def kept(self, store: Store, key: str) -> Record:
        """Return the record, and insist that there is one."""
        record = store.get(key)
        assert record is not None
        return record


def at_once(step: Callable[[int], Any]) -> list[Any]:
    """Run it in several threads that start together; return what each got."""
    barrier = Barrier(THREADS)

    def run(number: int) -> Any:
        barrier.wait()
        return step(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))
