"""What a store must be able to do. Times are seconds; the store's own clock decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from .record import Absent, Claim, Holder, Record, State


@runtime_checkable
class Store(Protocol):
    """One atomic step for each method. Every method raises
    :class:`~flask_idempotent.core.errors.StoreUnavailable` when the store cannot be reached or refuses to work."""

    def issue(self, key: str, *, binding: str, scene: str, ttl: float) -> None:
        """Record a token; does nothing if the key is there already.

        :param key: the store's key.
        :param binding: who may use it; empty for anyone.
        :param scene: the operation it is for; empty for any.
        :param ttl: the token's life in seconds.
        """

    def claim(
        self,
        key: str,
        *,
        owner: str,
        lease: float,
        ttl: float,
        must_exist: bool = False,
        binding: str = "",
        scene: str = "",
        fingerprint: str = "",
        takeover: bool = True,
        consume: bool = False,
    ) -> Claim | Holder | Absent:
        """Claim the record for ``owner``.

        :param key: the store's key.
        :param owner: random id of this attempt; the same owner asking again is given its claim again while it runs.
        :param lease: seconds for which the claim holds without news.
        :param ttl: seconds for which the record lives from now; a token keeps its own end.
        :param must_exist: a token must have been issued; otherwise a missing record is made.
        :param binding: must equal the record's.
        :param scene: must equal the record's, if that has one.
        :param fingerprint: digest of what is asked; another one on the record is a refusal.
        :param takeover: whether a later claim may take this one over once its lease is over.
        :param consume: be done at once, with nothing kept.
        """

    def settle(self, claim: Claim, *, state: State, hold: float, ttl: float, result: bytes | None = None) -> bool:
        """Give the claim's record a new state; RUNNING extends, ISSUED restores (and ignores ``hold`` and ``ttl``).

        :param claim: what :meth:`claim` returned.
        :param state: the new state.
        :param hold: seconds of lease from now, for RUNNING.
        :param ttl: seconds for which the record lives from now.
        :param result: bytes to keep, for DONE.
        :returns: False if the claim was lost to another owner, or the move is not allowed.
        """

    def get(self, key: str) -> Record | None:
        """Return the record, None if it is absent.

        :raises RecordInvalid: it is damaged, or of an unknown layout.
        """


@runtime_checkable
class AdminStore(Store, Protocol):
    """What the command line needs besides."""

    def scan(self) -> Iterator[str]:
        """Yield the keys of the live records."""

    def delete(self, key: str) -> bool:
        """Remove a record; return whether there was one."""

    def purge(self) -> int:
        """Remove what has expired; return how many records went."""
