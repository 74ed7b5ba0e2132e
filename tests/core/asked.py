"""The state machine, asked once for each question that the search of :mod:`tests.core.explore` can put to it.

A record is known by a number. It is kept as if it were always the same moment, ``BASE``, and without what can make no
difference any more; so there are few of them, and time needs no end. Of its owner only two things are kept, and by
those who ask: whether it is the one who asks, and whether the claim of the one who asks has a higher fence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from flask_idempotent.core import machine
from flask_idempotent.core.record import Absent, Claim, Holder, Record, State

BASE: Final = 1_000
HIGHEST: Final = BASE + 1
"""Fences above it count as it: many claims in one microsecond."""
ABOVE: Final = HIGHEST + 1
"""The fence of a claim that is newer than the record."""
NOTHING: Final = 0
"""The number of no record."""
_ME, _OTHER = "me", "other"


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds; a tick of the search is one."""

    lease: int = 1
    ttl: int = 2
    token_ttl: int = 3


def normal(record: Record | None, now: int) -> Record | None:
    """Return the record as if it were BASE now, without what no command can tell any more: how far in the past a moment
    lies; whether it was taken over, which only the answer says; what a settled record was before."""
    record = machine.live(record, now)
    if record is None:
        return None
    shift = BASE - now
    record = replace(
        record,
        fence=min(max(record.fence + shift, BASE - 1), HIGHEST),
        held_until=max(record.held_until + shift, BASE),
        expires_at=record.expires_at + shift,
        issued_until=max(record.issued_until + shift, BASE) if record.issued_until else 0,
        takeover=record.takeover or record.state is not State.RUNNING,
        taken=False,
    )
    if record.state in (State.ISSUED, State.RUNNING) or record.consumed:
        return record
    return replace(record, fence=BASE - 1, held_until=record.expires_at, issued_until=0)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the machine says to a command, and what is stored afterwards.

    :param said: to a claim Claim, Holder or Absent; to a settle whether it counts.
    :param old: the record before, as the machine was shown it.
    :param new: the record afterwards.
    :param number: that of the new record.
    :param mine: whether whoever asked owns the new record.
    :param wrote: whether what is stored has changed.
    """

    said: Claim | Holder | Absent | bool
    old: Record | None
    new: Record | None
    number: int
    mine: bool
    wrote: bool


class Asked:
    """Records by number, and the machine's answers about them."""

    def __init__(self, times: Times) -> None:
        self.times = times
        self.records: list[Record | None] = [None]
        self._numbers: dict[Record | None, int] = {None: NOTHING}
        self.claim: Callable[[int, bool, bool, bool, bool], Answer] = cache(self._claim)
        self.settle: Callable[[int, bool, bool, State, bool], Answer] = cache(self._settle)
        self.issue: Callable[[int], Answer] = cache(self._issue)
        self.later: Callable[[int], int] = cache(self._later)

    def _claim(self, number: int, mine: bool, must_exist: bool, takeover: bool, consume: bool) -> Answer:
        old = self._asked_by_me(number, mine)
        times = self.times
        answer = machine.claim(
            old,
            BASE,
            "key",
            owner=_ME,
            lease=times.lease,
            ttl=times.ttl,
            must_exist=must_exist,
            takeover=takeover,
            consume=consume,
        )
        return self._answer(answer, old, answer.record if isinstance(answer, Claim) else old)

    def _settle(self, number: int, mine: bool, newer: bool, state: State, with_result: bool) -> Answer:
        old = self._asked_by_me(number, mine)
        new, counts = machine.settle(
            old,
            BASE,
            Claim("key", Record(State.RUNNING, fence=ABOVE if newer else 0, owner=_ME)),
            state=state,
            hold=self.times.lease,
            ttl=self.times.ttl,
            result=b"answer" if with_result else None,
        )
        return self._answer(counts, old, new)

    def _issue(self, number: int) -> Answer:
        old = self._asked_by_me(number, False)
        return self._answer(True, old, machine.issue(old, BASE, binding="", scene="", ttl=self.times.token_ttl))

    def _later(self, number: int) -> int:
        return self._number(normal(self.records[number], BASE + 1))

    def _asked_by_me(self, number: int, mine: bool) -> Record | None:
        record = self.records[number]
        return None if record is None else replace(record, owner=_ME if mine else _OTHER)

    def _answer(self, said: Claim | Holder | Absent | bool, old: Record | None, new: Record | None) -> Answer:
        kept = normal(new, BASE)
        mine = kept is not None and kept.owner == _ME
        number = self._number(None if kept is None else replace(kept, owner=""))
        return Answer(said, old, new, number, mine, new != old)

    def _number(self, record: Record | None) -> int:
        number = self._numbers.setdefault(record, len(self.records))
        if number == len(self.records):
            self.records.append(record)
        return number
