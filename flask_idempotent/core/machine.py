"""The state machine, as pure functions over a record and a time.

The memory store calls them; ``claim.lua`` and ``settle.lua`` say the same again. A record may be claimed if, and only
if, the store's clock has reached its ``held_until``; two refinements are about a claim whose worker died (see
:func:`_refusal`). All times are microseconds.
"""

from __future__ import annotations

from dataclasses import replace

from .record import Absent, Claim, Holder, Record, State, Verdict


def live(record: Record | None, now: int) -> Record | None:
    """Return the record, or None if its life is over: expired is absent."""
    return record if record is not None and now < record.expires_at else None


def issue(record: Record | None, now: int, *, binding: str, scene: str, ttl: int) -> Record:
    """Return the record of a token. One that is there already stays: a late copy of the command must not revive it."""
    if (current := live(record, now)) is not None:
        return current
    end = now + ttl
    return Record(State.ISSUED, expires_at=end, issued_until=end, binding=binding, scene=scene)


def claim(
    record: Record | None,
    now: int,
    key: str,
    *,
    owner: str,
    lease: int,
    ttl: int,
    must_exist: bool = False,
    binding: str = "",
    scene: str = "",
    fingerprint: str = "",
    takeover: bool = True,
    consume: bool = False,
) -> Claim | Holder | Absent:
    """Decide one claim. Only a :class:`Claim` whose owner is new to the record changes what is stored."""
    record = live(record, now)
    if record is None and must_exist:
        return Absent()
    if record is None:
        record = Record(State.ISSUED, binding=binding, scene=scene)
    elif (verdict := _refusal(record, now, owner, binding, scene, fingerprint)) is not None:
        return Holder(record, verdict, now)
    elif record.owner == owner:
        return Claim(key, record)
    expires = _end_of_claim(record, now, lease, ttl)
    return Claim(
        key,
        replace(
            record,
            state=State.DONE if consume else State.RUNNING,
            fence=max(now, record.fence + 1),
            held_until=expires if consume else now + lease,
            expires_at=expires,
            owner=owner,
            fingerprint=fingerprint,
            result=None,
            takeover=takeover,
            taken=record.state is State.RUNNING,
            consumed=consume,
        ),
    )


def _refusal(record: Record, now: int, owner: str, binding: str, scene: str, fingerprint: str) -> Verdict | None:
    """Return the first rule that speaks against the claim; None also for an owner who asks again."""
    if record.binding != binding or record.scene not in ("", scene):
        return Verdict.FOREIGN
    if record.fingerprint and fingerprint and record.fingerprint != fingerprint:
        return Verdict.REUSED
    if record.owner == owner:
        # The reply to my claim was lost and the driver asked again: it is still mine. Once it is settled, a late copy
        # of the command must occupy nothing.
        if record.state is State.RUNNING or record.consumed:
            return None
        return Verdict.RUNNING if record.state is State.ISSUED else Verdict(record.state.value)
    if now < record.held_until:
        return Verdict(record.state.value)
    if record.state is State.RUNNING and not record.takeover:
        # Its worker died half-way and restore is off: nobody knows what happened, people reconcile it.
        return Verdict.FAILED
    return None


def settle(
    record: Record | None,
    now: int,
    claim: Claim,
    *,
    state: State,
    hold: int,
    ttl: int,
    result: bytes | None = None,
) -> tuple[Record | None, bool]:
    """Return the record as it is afterwards (None: deleted) and whether the owner's word counts."""
    record = live(record, now)
    if state is not State.DONE:
        result = None
    if record is None or record.owner != claim.owner:
        return _settle_missing(record, now, claim, state, ttl, result)
    if record.state is state and state is not State.RUNNING and not (result is not None and record.result is None):
        # The same command again. Another result under the same owner is none.
        return record, result is None or result == record.result
    if record.state is not State.RUNNING and not _may_follow(record, state):
        return record, False
    if state is State.ISSUED:
        return _restored(record, now), True
    if state is State.RUNNING:
        return replace(record, held_until=now + hold, expires_at=_end_of_claim(record, now, hold, ttl)), True
    return _finished(record, now, state, ttl, result), True


def _settle_missing(
    record: Record | None, now: int, claim: Claim, state: State, ttl: int, result: bytes | None
) -> tuple[Record | None, bool]:
    """The store does not have the claim. If its record is gone, or went back to before the claim, then the effect that
    happened, or half happened, is written anew. To restore or extend writes nothing: the late copy of such a command
    would occupy the key."""
    if state in (State.DONE, State.FAILED) and (record is None or _is_older(record, claim)):
        return _finished(claim.record, now, state, ttl, result), True
    return record, record is None


def _is_older(record: Record, claim: Claim) -> bool:
    """Return whether the store went back to before the claim: a failover or a restart lost what was written last, and
    fences only grow. What is done or failed stays: its effect happened, too, and its answer may have been given."""
    return record.fence < claim.fence and record.state in (State.ISSUED, State.RUNNING)


def _may_follow(record: Record, state: State) -> bool:
    """Return whether a record that is no longer running may move on: consumed to issued or failed, done to done with a
    result."""
    if record.consumed:
        return state in (State.ISSUED, State.FAILED)
    return record.state is State.DONE and state is State.DONE and record.result is None


def _finished(record: Record, now: int, state: State, ttl: int, result: bytes | None) -> Record:
    end = now + ttl
    return replace(record, state=state, held_until=end, expires_at=end, result=result, consumed=False)


def _restored(record: Record, now: int) -> Record | None:
    """Give a token back until its own end; a key is deleted."""
    if now >= record.issued_until:
        return None
    return replace(
        record,
        state=State.ISSUED,
        held_until=0,
        expires_at=record.issued_until,
        fingerprint="",
        takeover=True,
        taken=False,
        consumed=False,
        result=None,
    )


def _end_of_claim(record: Record, now: int, lease: int, ttl: int) -> int:
    """A token lives to its own end, a key for its ttl; never less than it had, never less than two leases."""
    return max(record.issued_until or now + ttl, record.expires_at, now + 2 * lease)
