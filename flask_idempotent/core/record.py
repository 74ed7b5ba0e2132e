"""The record: what a store keeps under a key, and the answers that a store gives about it.

All times inside a record are whole microseconds of the store's own clock, so that every store compares them exactly;
whatever users pass or read is in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MICROSECONDS: Final = 1_000_000
"""Microseconds in a second."""


class State(StrEnum):
    """Where a record stands."""

    ISSUED = "issued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Verdict(StrEnum):
    """Why a claim was refused, in the order in which the rules are asked."""

    DAMAGED = "damaged"
    FOREIGN = "foreign"
    REUSED = "reused"
    RUNNING = "running"
    FAILED = "failed"
    DONE = "done"


@dataclass(slots=True, unsafe_hash=True)  # one is made in every replay: freezing takes longer than all else of it
class Record:
    """One intended operation. Nobody changes one; what comes next is another.

    :param state: where it stands.
    :param fence: number of the latest claim; it only grows.
    :param held_until: may be claimed from this moment on (microseconds of the store's clock).
    :param expires_at: is gone from this moment on (microseconds of the store's clock).
    :param issued_until: the end of the token's own life (microseconds); 0 for a key that no one issued.
    :param owner: who claimed it last.
    :param binding: who may use the token; empty for anyone.
    :param scene: the operation it was issued for; empty for any.
    :param fingerprint: digest of what was asked; empty while nobody asked.
    :param result: opaque bytes that the owner left, or None.
    :param takeover: whether a later claim may take the running one over once its lease is over.
    :param taken: whether the running claim took over an earlier one.
    :param consumed: done by the claim itself, not yet settled by its owner.
    """

    state: State
    fence: int = 0
    held_until: int = 0
    expires_at: int = 0
    issued_until: int = 0
    owner: str = ""
    binding: str = ""
    scene: str = ""
    fingerprint: str = ""
    result: bytes | None = None
    takeover: bool = True
    taken: bool = False
    consumed: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to do the work.

    :param key: the store's key.
    :param record: the record as the claim left it.
    """

    key: str
    record: Record

    @property
    def owner(self) -> str:
        """The id of this claim attempt."""
        return self.record.owner

    @property
    def fence(self) -> int:
        """A number that grows with every claim of the key: hand it to what lies downstream."""
        return self.record.fence

    @property
    def taken(self) -> bool:
        """Whether an earlier owner, who let its lease pass, lost the key to this claim."""
        return self.record.taken


@dataclass(slots=True, unsafe_hash=True)
class Holder:
    """A record that could not be claimed.

    :param record: the record as it stands; None if it is damaged.
    :param verdict: the first rule that spoke against the claim.
    :param now: the store's own time of the answer (microseconds).
    """

    record: Record | None
    verdict: Verdict
    now: int

    @property
    def seconds_left(self) -> float:
        """Seconds until the record may be claimed; 0 unless a claim is running."""
        if self.record is None or self.verdict is not Verdict.RUNNING:
            return 0.0
        return max(0, self.record.held_until - self.now) / MICROSECONDS


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such record, and the claim asked for one that exists."""


def microseconds(seconds: float) -> int:
    """Return whole microseconds."""
    return round(seconds * MICROSECONDS)
