"""What DESIGN.md says "must never" happen to one key, asked at every command that a store executes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from flask_idempotent.core.record import Claim, Record, State

from .asked import BASE, Answer, Times

if TYPE_CHECKING:
    from .attempts import Attempt

ONE_AT_A_TIME: Final = "no second claim is granted while the lease of an unsettled one runs"
DONE_STANDS: Final = "nothing is claimed while a done or failed record lives"
NEVER_TAKEN: Final = "a claim with takeover off is never taken over while its record lives"
TOLD: Final = "every takeover is told"
POWERLESS: Final = "an owner whose claim was taken over changes nothing by any settle"
HOLDS: Final = "whoever is told that the claim is theirs holds the record"
MINE: Final = "its own running claim is never refused to an owner as a duplicate"
CLAIMS_ONCE: Final = "a settled owner's late claim changes nothing while its record stands"
AGAIN: Final = "a settle that comes again is answered as before"
CAN_END: Final = "an owner that nobody replaced can complete and fail"
CAN_GO_ON: Final = "an owner that nobody replaced can restore and extend"
RECORDED: Final = "an effect is recorded even if its record is gone, or older than its claim"
STAYS_GONE: Final = "to restore or extend what is gone, or older than the claim, writes nothing"
STAYS_SETTLED: Final = "what is settled stays settled"
NO_LONGER: Final = "restoring lengthens no life"
LIVES: Final = "a claim shortens no life and outlives two leases; a result lives for its ttl from completion"
HAS_AN_END: Final = "every record has an end, and is held no longer"
ONE_LEASE: Final = "a claim holds for one lease; a consumed one to its end"
FENCES: Final = "fences grow while a record lives"
FENCE_CLOCK: Final = "no fence is behind the store's clock: after a record's end they grow too, but for one microsecond"
ISSUED_ONCE: Final = "a late copy of an issue changes nothing while a record lives"
ALL: Final = frozenset(value for name, value in globals().items() if name.isupper() and isinstance(value, str))
"""Every promise."""

# How an attempt to claim stands, by what the store has said yes to: it does not hold the key, or no more; it holds it;
# it holds it by a copy of its claim that came when its worker had left or had been replaced; it has settled; it is
# older than a token issued again.
NONE, HELD, SQUATS, OVER, PAST = "none", "held", "squats", "over", "past"
CURRENT: Final = (HELD, SQUATS)

ENDS: Final = (State.DONE, State.FAILED)
FREE, CLAIMED, FIRM, SETTLED = "free", "claimed", "firm", "settled"


class Truth(NamedTuple):
    """What is true of a key by all that the store has said yes to: a failover does not change it.

    ``mode`` is firm for a claim with takeover off; ``lease`` and ``life`` are the microseconds left of both; ``top`` is
    the highest fence given in this life of the record.
    """

    mode: str = FREE
    lease: int = 0
    life: int = 0
    top: int = BASE - 1

    def later(self) -> Truth:
        """Return it one microsecond later."""
        if self.life <= 1:
            return Truth()
        return Truth(self.mode, max(self.lease - 1, 0), self.life - 1, max(self.top - 1, BASE - 1))


def of_claim(truth: Truth, status: str, mine: bool, answer: Answer, times: Times) -> Iterator[str]:
    """Yield the promises that a claim has broken, of an attempt that stands so and owned the record or not."""
    old, claim = answer.old, answer.said
    if not isinstance(claim, Claim):
        if status in CURRENT and old is not None:
            yield MINE
        return
    if not answer.mine or not (claim.record.state is State.RUNNING or claim.record.consumed):
        yield HOLDS
    if answer.wrote:
        if status not in CURRENT:
            yield from _of_second(truth, claim)
        if status == OVER and mine and old is not None:
            yield CLAIMS_ONCE
        yield from _of_grant(truth, old, claim, times)


def _of_grant(truth: Truth, old: Record | None, claim: Claim, times: Times) -> Iterator[str]:
    record = claim.record
    if claim.fence <= truth.top:
        yield FENCES
    if claim.fence < BASE:
        yield FENCE_CLOCK
    if record.expires_at < max(BASE + 2 * times.lease, old.expires_at if old else 0):
        yield LIVES
    if record.held_until != (record.expires_at if record.consumed else BASE + times.lease):
        yield ONE_LEASE
    yield from _of_end(record, times)


def _of_second(truth: Truth, claim: Claim) -> Iterator[str]:
    """Yield what is broken when a claim is granted to somebody new."""
    if truth.lease:
        yield ONE_AT_A_TIME
    elif truth.mode == FIRM:
        yield NEVER_TAKEN
    elif truth.mode == CLAIMED and not claim.taken:
        yield TOLD
    if truth.mode == SETTLED:
        yield DONE_STANDS


def of_settle(
    truth: Truth, sender: Attempt, state: State, with_result: bool, answer: Answer, times: Times
) -> Iterator[str]:
    """Yield the promises that a settle has broken."""
    old, new, status, mine = answer.old, answer.new, sender.status, sender.owns
    if old is None or sender.newer:
        yield from _of_settle_missing(state, answer)
    if old is not None:
        anew = sender.newer and state in ENDS
        if (status == NONE or not (mine or anew)) and (answer.wrote or answer.said):
            yield POWERLESS
        if (
            (status == HELD or (status == SQUATS and mine))
            and not answer.said
            and _may_settle(truth, state, with_result)
        ):
            yield CAN_END if state in ENDS else CAN_GO_ON
        if status == OVER and mine and old.state is state and not answer.said and not (old.consumed and with_result):
            yield AGAIN
        if _is_settled(old) and answer.wrote and not (mine and _is_its_result(old, new)):
            yield STAYS_SETTLED
        if state is State.ISSUED and answer.wrote and new is not None and _is_longer(old, new):
            yield NO_LONGER
    if new is not None and answer.wrote:
        if state in ENDS and new.expires_at != BASE + times.ttl:
            yield LIVES
        yield from _of_end(new, times)


def _of_settle_missing(state: State, answer: Answer) -> Iterator[str]:
    if state not in ENDS:
        if answer.wrote:
            yield STAYS_GONE
    elif not (answer.said and answer.mine and answer.new is not None and answer.new.state is state):
        yield RECORDED


def of_issue(answer: Answer) -> Iterator[str]:
    """Yield the promises that a late copy of an issue has broken."""
    if answer.old is not None and answer.wrote:
        yield ISSUED_ONCE


def _may_settle(truth: Truth, state: State, with_result: bool) -> bool:
    """A consumed claim is done already: it can be given back or fail, not run on, and keeps nothing."""
    return truth.mode != SETTLED or not (state is State.RUNNING or with_result)


def _is_settled(record: Record) -> bool:
    return record.state in ENDS and not record.consumed


def _is_its_result(old: Record, new: Record | None) -> bool:
    return new is not None and (old.state, new.state, old.result) == (State.DONE, State.DONE, None)


def _is_longer(old: Record, new: Record) -> bool:
    return new.expires_at > min(old.expires_at, old.issued_until) or new.issued_until != old.issued_until


def _of_end(record: Record, times: Times) -> Iterator[str]:
    longest = max(times.ttl, times.token_ttl, 2 * times.lease)
    if not BASE < record.expires_at <= BASE + longest or record.held_until > record.expires_at:
        yield HAS_AN_END
