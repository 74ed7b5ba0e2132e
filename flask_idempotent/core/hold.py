"""A claim in use: what its owner may say about the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .errors import StoreUnavailable
from .record import Claim, State

if TYPE_CHECKING:
    from .guard import Guard


class Terms(NamedTuple):  # made in every request: a frozen dataclass takes five times as long
    """What is to be claimed.

    :param digest: stands for the token or key, see :mod:`flask_idempotent.core.keys`.
    :param token: whether it must have been issued.
    :param lease: seconds for which the claim holds without news.
    :param life: seconds for which the record lives while the work runs; a token keeps its own end.
    :param ttl: seconds for which the result lives.
    :param restore: whether a failure gives the token or key back.
    :param consume: be done at the claim, with nothing kept.
    :param kind: ``lock`` or ``interval`` for what is claimed beside a token or key: no event tells of its ways.
    """

    digest: str
    token: bool
    lease: float
    life: float
    ttl: float
    scene: str = ""
    binding: str = ""
    fingerprint: str = ""
    description: str = ""
    restore: bool = True
    consume: bool = False
    kind: str = ""


class Hold:
    """A claim in use. Its methods never raise when the store is away: the view's own outcome counts more, and what
    could not be written is one ERROR in the log.

    :param guard: where it was claimed.
    :param terms: what was claimed.
    :param owner: the id of this attempt.
    """

    __slots__ = (
        "_lost",
        "_stands_as_done",
        "claim",
        "given_back",
        "guard",
        "kept",
        "owner",
        "sent",
        "settled",
        "terms",
    )

    def __init__(self, guard: Guard, terms: Terms, owner: str) -> None:
        self.guard = guard
        self.terms = terms
        self.owner = owner
        self.claim: Claim | None = None
        self.kept = False
        self.sent = False
        self.given_back = False
        self.settled = False
        self._stands_as_done = terms.consume
        self._lost = False

    @property
    def fence(self) -> int:
        """A number that grows with every claim of the key; 0 if the claim was never confirmed."""
        return self.claim.fence if self.claim is not None else 0

    def complete(self, result: bytes | None = None) -> None:
        """The work succeeded; keep ``result`` for duplicates. A consumed claim is done already and keeps nothing: the
        store is not asked."""
        if self._stands_as_done and (result is None or self.terms.consume):
            self.settled = True
        else:
            self._settle("completed", State.DONE, result)

    def keep(self) -> None:
        """The effect happened: from now on a failure makes the record done, without an answer. Written at once, so that
        it survives a crash."""
        if self.settled or self.kept:
            return
        self.kept = True
        if not self._stands_as_done:
            self._stands_as_done = self._write("completed", State.DONE, None)

    def restore(self) -> None:
        """Nothing happened: the token or key is good again; a hold that was kept becomes done instead."""
        if self.kept:
            self.complete()
        else:
            self._settle("restored", State.ISSUED, None)

    def fail(self) -> None:
        """It failed, perhaps half-way: the record stays failed, and people reconcile it."""
        if self.kept:
            self.complete()
        else:
            self._settle("kept_failed", State.FAILED, None)

    def extend(self) -> bool:
        """The work goes on: hold the claim for another lease from now.

        :returns: False if the claim was lost: its lease was over and another owner has it, or the store went back to
            before the claim.
        """
        return self.try_extend() is not False

    def try_extend(self) -> bool | None:
        """The same, and None if the store did not answer: the claim may be asked for again soon."""
        if self.settled or self._stands_as_done:
            return True
        try:
            extended = self.guard.extend(self)
        except StoreUnavailable:
            return None
        if not extended and not self.settled:
            self._tell_lost()
        return extended

    def release(self) -> None:
        """Give back a claim whose reply never came: it may lie in the store all the same."""
        if not self.settled:
            self.settled = True
            self.guard.release(self)

    def _settle(self, event: str, state: State, result: bytes | None) -> None:
        if not self.settled:
            self.settled = True
            self._write(event, state, result)

    def _write(self, event: str, state: State, result: bytes | None) -> bool:
        try:
            counts = self.guard.settle(self, state, result)
        except StoreUnavailable as error:
            self.guard.tell("settle_failed", self.terms, reason=error.describe())
            self.guard.owe(self, state)
            return False
        if counts:
            self.guard.tell(event, self.terms)
        else:
            self._tell_lost()
        return counts

    def _tell_lost(self) -> None:
        if not self._lost:
            self._lost = True
            self.guard.tell(
                "claim_lost", self.terms, reason="its lease was over and another owner has it, or the store lost it"
            )
