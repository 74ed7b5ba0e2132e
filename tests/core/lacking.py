"""The state machine without one of its rules at a time: what the search must find out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from flask_idempotent.core import machine
from flask_idempotent.core.record import Claim, Record, State

from . import promises

Rule = Callable[..., Any]
MACHINES: dict[str, tuple[str, Rule]] = {}
"""By the promise that breaks: the function that is replaced, and what replaces it (given the rule itself first)."""


def use(patch: pytest.MonkeyPatch, promise: str) -> None:
    """Replace the rule without which the promise breaks."""
    name, instead = MACHINES[promise]
    patch.setattr(machine, name, partial(instead, getattr(machine, name)))


def _breaks(promise: str, name: str) -> Callable[[Rule], Rule]:
    def add(instead: Rule) -> Rule:
        MACHINES[promise] = (name, instead)
        return instead

    return add


@_breaks(promises.ONE_AT_A_TIME, "_refusal")
def _lease_not_asked(rule: Rule, record: Record, now: int, *asked: str) -> Any:
    return rule(replace(record, held_until=now) if record.state is State.RUNNING else record, now, *asked)


@_breaks(promises.DONE_STANDS, "_refusal")
def _done_not_asked(rule: Rule, record: Record, now: int, *asked: str) -> Any:
    return rule(replace(record, held_until=now) if record.state is not State.RUNNING else record, now, *asked)


@_breaks(promises.NEVER_TAKEN, "_refusal")
def _takeover_not_asked(rule: Rule, record: Record, *asked: Any) -> Any:
    return rule(replace(record, takeover=True), *asked)


@_breaks(promises.MINE, "_refusal")
def _owner_of_a_claim_not_known_again(rule: Rule, record: Record, *asked: Any) -> Any:
    return rule(replace(record, owner=""), *asked)


@_breaks(promises.HOLDS, "_refusal")
def _settled_owner_taken_for_a_running_one(rule: Rule, record: Record, now: int, owner: str, *asked: str) -> Any:
    return None if record.owner == owner else rule(record, now, owner, *asked)


@_breaks(promises.CLAIMS_ONCE, "claim")
def _last_owner_forgotten(rule: Rule, record: Record | None, *asked: Any, **options: Any) -> Any:
    restored = record is not None and record.state is State.ISSUED
    return rule(replace(record, owner="") if record and restored else record, *asked, **options)


@_breaks(promises.TOLD, "claim")
def _takeover_not_told(rule: Rule, record: Record | None, *asked: Any, **options: Any) -> Any:
    return _changed(record, rule(record, *asked, **options), taken=False)


@_breaks(promises.FENCES, "claim")
def _fence_of_the_clock_only(rule: Rule, record: Record | None, now: int, *asked: Any, **options: Any) -> Any:
    return _changed(record, rule(record, now, *asked, **options), fence=now)


@_breaks(promises.FENCE_CLOCK, "claim")
def _fence_of_the_record_only(rule: Rule, record: Record | None, *asked: Any, **options: Any) -> Any:
    return _changed(record, rule(record, *asked, **options), fence=record.fence if record else 0)


@_breaks(promises.ONE_LEASE, "claim")
def _longer_lease(rule: Rule, *asked: Any, lease: int, **options: Any) -> Any:
    return rule(*asked, lease=lease + 1, **options)


@_breaks(promises.LIVES, "_end_of_claim")
def _ends_with_the_lease(rule: Rule, record: Record, now: int, lease: int, ttl: int) -> int:
    return now + lease


@_breaks(promises.HAS_AN_END, "_end_of_claim")
def _ends_never(rule: Rule, *asked: Any) -> int:
    return 1 << 53


@_breaks(promises.POWERLESS, "settle")
def _owner_of_a_settle_not_asked(rule: Rule, record: Record | None, now: int, claim: Claim, **options: Any) -> Any:
    return rule(record and replace(record, owner=claim.owner), now, claim, **options)


@_breaks(promises.CAN_END, "settle")
def _late_owner_may_not_end(rule: Rule, record: Record | None, now: int, claim: Claim, **options: Any) -> Any:
    late = record is not None and record.state is State.RUNNING and now >= record.held_until
    return (record, False) if late and options["state"] in promises.ENDS else rule(record, now, claim, **options)


@_breaks(promises.CAN_GO_ON, "settle")
def _late_owner_may_not_go_on(rule: Rule, record: Record | None, now: int, claim: Claim, **options: Any) -> Any:
    late = record is not None and record.state is State.RUNNING and now >= record.held_until
    return (record, False) if late and options["state"] not in promises.ENDS else rule(record, now, claim, **options)


@_breaks(promises.AGAIN, "settle")
def _second_settle_refused(rule: Rule, record: Record | None, now: int, claim: Claim, **options: Any) -> Any:
    new, counts = rule(record, now, claim, **options)
    return new, counts and (new != record or new is None or new.state is State.RUNNING or new.consumed)


@_breaks(promises.RECORDED, "_settle_missing")
def _effect_forgotten(rule: Rule, record: Record | None, *asked: Any) -> Any:
    return record, record is None


@_breaks(promises.STAYS_GONE, "_settle_missing")
def _whatever_comes_is_written(rule: Rule, record: Record | None, now: int, claim: Claim, *asked: Any) -> Any:
    if record is not None:
        return rule(record, now, claim, *asked)
    state, ttl, result = asked
    return machine._finished(claim.record, now, state, ttl, result), True


@_breaks(promises.STAYS_SETTLED, "_may_follow")
def _anything_may_follow(rule: Rule, *asked: Any) -> bool:
    return True


@_breaks(promises.NO_LONGER, "_restored")
def _restored_for_longer(rule: Rule, record: Record, now: int) -> Record | None:
    new: Record | None = rule(record, now)
    return new and replace(new, expires_at=new.expires_at + 1)


@_breaks(promises.ISSUED_ONCE, "issue")
def _issued_anew(rule: Rule, record: Record | None, *asked: Any, **options: Any) -> Any:
    return rule(None, *asked, **options)


def _changed(old: Record | None, answer: Any, **changes: Any) -> Any:
    """A claim that was granted just now, with another record."""
    granted = isinstance(answer, Claim) and answer.record is not old
    return replace(answer, record=replace(answer.record, **changes)) if granted else answer
