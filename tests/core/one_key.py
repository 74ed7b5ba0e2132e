"""One key's part of the world that :mod:`tests.core.explore` searches: a record, the attempts to claim it, and what of
theirs is on its way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from flask_idempotent.core.record import Claim, Record, State

from . import promises
from .asked import BASE, HIGHEST, NOTHING, Answer, Asked, Times
from .attempts import ASKING, CLAIM, LEFT, SETTLES, WORKING, Attempt, Load, left, load, moves, tidy, travelled, written
from .promises import CLAIMED, CURRENT, FIRM, FREE, HELD, NONE, OVER, PAST, SETTLED, SQUATS, Truth

SHORT: Final = Times()
SEALED: Final = -1
"""For ``before``: there is no last write that a failover could lose."""


class Part(NamedTuple):
    """One key: what is stored, what was stored before the last write, what is true, and who is about."""

    token: bool
    record: int = NOTHING
    before: int = SEALED
    truth: Truth = Truth()
    issue: bool = False  # a late copy of the token's issue is on its way
    attempts: tuple[Attempt, ...] = ()


class Step(NamedTuple):
    """Something that can happen: its name, the part afterwards, and the promises that it breaks."""

    name: str
    part: Part
    wrote: bool = False
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What may happen.

    :param kinds: takeover and consume of a claim.
    :param settles: what owners send.
    :param late: a command that has come may come once more.
    :param failover: the last write of all may be lost, any number of times.
    """

    times: Times = SHORT
    kinds: tuple[tuple[bool, bool], ...] = ((True, False), (False, False), (True, True))
    settles: tuple[str, ...] = tuple(SETTLES)
    late: bool = True
    failover: bool = False


class OneKey:
    """The steps of a part. ``facts`` tells what late commands changed whose owner had settled, or had been replaced."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.asked = Asked(rules.times)
        self.facts: Counter[str] = Counter()

    def issued(self) -> Part:
        """A token, issued this moment; a late copy of that command is on its way."""
        answer = self.asked.issue(NOTHING)
        assert answer.new is not None
        return Part(True, answer.number, truth=Truth(life=answer.new.expires_at - BASE), issue=self.rules.late)

    def later(self, part: Part) -> Part:
        """Return the part one microsecond later."""
        before = part.before if part.before == SEALED else self.asked.later(part.before)
        return self._tidy(part._replace(record=self.asked.later(part.record), before=before, truth=part.truth.later()))

    def sealed(self, part: Part) -> Part:
        """Return the part when its last write can no longer be lost: another key was written after it."""
        attempts = tuple(one._replace(owned=False, was_newer=False) for one in part.attempts)
        return self._tidy(part._replace(before=SEALED, attempts=attempts))

    def steps(self, part: Part, room: Load) -> Iterator[tuple[Step, Load]]:
        """Yield all that can happen next, but for the time, as far as there is room for it."""
        for name, following, wrote, broken in self._steps(part):
            needs = load_of(following)
            if fits(needs, room):
                yield Step(name, self._tidy(following), wrote, broken), needs

    def described(self, part: Part) -> str:
        """A part in one line, for people."""
        who = "; ".join(map(str, part.attempts))
        record, kind = self.asked.records[part.record], "token" if part.token else "key"
        if record is None:
            return f"{kind}: gone [{who}]"
        times = f"fence {record.fence - BASE:+}, held {record.held_until - BASE}, lives {record.expires_at - BASE}"
        return f"{kind}: {_described(record)} ({times}) [{who}]"

    def _steps(self, part: Part) -> Iterator[Step]:
        yield Step("start", part._replace(attempts=(*part.attempts, Attempt())))
        for index, attempt in enumerate(part.attempts):
            for name, moved in moves(attempt, self.rules.settles):
                yield Step(name, _with(part, index, moved))
            for kind, late in attempt.net:
                yield from self._travels(part, index, kind, late)
        if part.issue:
            yield Step("lose a copy", part._replace(issue=False))
            yield self._issued_again(part)
        if part.before != SEALED:
            yield Step("failover", self._failed_over(part))

    def _travels(self, part: Part, index: int, kind: str, late: bool) -> Iterator[Step]:
        """A command arrives, or is lost. One that arrives leaves a late copy behind, which may be lost in its turn."""
        attempt = part.attempts[index]
        yield Step(
            "lose a copy" if late else "lose a command", _with(part, index, travelled(attempt, kind, late, False))
        )
        part = _with(part, index, travelled(attempt, kind, late, self.rules.late and not late))
        for answer, step in self._claimed(part, index) if kind == CLAIM else self._settled(part, index, kind):
            if late:
                self._note(attempt, kind, answer)
                yield Step(_late(step.name), step.part, step.wrote, step.broken)
                continue
            yield step
            if kind == CLAIM and attempt.phase == ASKING:
                yield step._replace(name=f"{step.name}, heard", part=_heard(step.part, index, answer))

    def _claimed(self, part: Part, index: int) -> Iterator[tuple[Answer, Step]]:
        """A claim comes. It may be of any kind each time, which is more than a network can do to it."""
        attempt, times = part.attempts[index], self.rules.times
        for takeover, consume in self.rules.kinds:
            answer = self.asked.claim(part.record, attempt.owns, part.token, takeover, consume)
            broken = tuple(promises.of_claim(part.truth, attempt.status, attempt.owns, answer, times))
            if isinstance(answer.said, Claim) and answer.wrote:
                name = "claim taken over" if answer.said.taken else "claim granted"
                status = (
                    HELD if attempt.phase == ASKING or (attempt.status == HELD and attempt.phase != LEFT) else SQUATS
                )
                # What it sends later carries the fence of the claim that it has heard of.
                newer = _with(part, index, attempt._replace(newer=attempt.newer or attempt.phase == ASKING))
                written = self._write(newer, index, answer, status, newer=False)
                yield answer, Step(name, written._replace(truth=_granted(part.truth, answer.said, times)), True, broken)
            else:
                name = "claim known again" if isinstance(answer.said, Claim) else "claim refused"
                yield answer, Step(name, part, broken=broken)
                if not broken:
                    return  # it is the same for every kind

    def _settled(self, part: Part, index: int, kind: str) -> Iterator[tuple[Answer, Step]]:
        attempt, (state, with_result), times = part.attempts[index], SETTLES[kind], self.rules.times
        answer = self.asked.settle(part.record, attempt.owns, attempt.newer, state, with_result)
        broken = tuple(promises.of_settle(part.truth, attempt, state, with_result, answer, times))
        if answer.said:
            if answer.wrote or (state is State.ISSUED and attempt.status in CURRENT):
                part = part._replace(truth=_settled(part.truth, state, answer.new, times))
            status = attempt.status if state is State.RUNNING else OVER
            if answer.wrote:
                part = self._write(part, index, answer, status)
            else:
                part = _with(part, index, attempt._replace(status=status))
        yield answer, Step(kind if answer.said else f"{kind} refused", part, answer.wrote, broken)

    def _write(self, part: Part, index: int, answer: Answer, status: str, newer: bool | None = None) -> Part:
        """Store the new record; whoever else held the key has been replaced.

        :param newer: whether the others are newer than it; None: as before.
        """
        failover = self.rules.failover
        attempts = [written(one, one.newer if newer is None else newer, failover) for one in part.attempts]
        if index >= 0:
            attempts[index] = attempts[index]._replace(status=status, owns=answer.mine)
        before = part.record if failover else SEALED
        return Part(part.token, answer.number, before, part.truth, part.issue, tuple(attempts))

    def _issued_again(self, part: Part) -> Step:
        answer = self.asked.issue(part.record)
        broken = tuple(promises.of_issue(answer))
        part = part._replace(issue=False)
        if answer.wrote:
            self.facts[f"issue: {_described(answer.old)} → {_described(answer.new)}"] += 1
            part = self._write(part, -1, answer, NONE, newer=True)
            attempts = tuple(one._replace(status=PAST) for one in part.attempts)
            part = part._replace(truth=Truth(life=self.rules.times.token_ttl), attempts=attempts)
        return Step("late issue", part, answer.wrote, broken)

    def _failed_over(self, part: Part) -> Part:
        attempts = tuple(
            one._replace(owns=one.owned, newer=one.was_newer, owned=False, was_newer=False) for one in part.attempts
        )
        return part._replace(record=part.before, before=SEALED, attempts=attempts)

    def _note(self, attempt: Attempt, kind: str, answer: Answer) -> None:
        if answer.wrote and attempt.phase == LEFT and attempt.status != HELD and not self.rules.failover:
            who = " of a late claim" if attempt.status == SQUATS else ""
            self.facts[f"{kind}{who}: {_described(answer.old)} → {_described(answer.new)}"] += 1

    def _goes_on(self, number: int) -> bool:
        record = self.asked.records[number]
        return record is not None and record.state in (State.ISSUED, State.RUNNING)

    def _tidy(self, part: Part) -> Part:
        """Leave out what can make no difference any more, and the order of the attempts."""
        token, record, before, truth, issue, attempts = part
        there, was_there, forgets = record != NOTHING, before not in (NOTHING, SEALED), not self.rules.failover
        older, was_older = there and self._goes_on(record), was_there and self._goes_on(before)
        tidied = [
            tidy(one, there, was_there, older, was_older, forgets) for one in attempts if one.phase != LEFT or one.net
        ]
        tidied.sort()
        return Part(token, record, before, truth, issue, tuple(tidied))


def load_of(part: Part) -> Load:
    """What a part takes of the bounds."""
    workers, sent, late = 0, 0, int(part.issue)
    for attempt in part.attempts:
        each = load(attempt)
        workers, sent, late = workers + each.workers, sent + each.sent, late + each.late
    return Load(workers, sent, late)


def fits(needs: Load, room: Load) -> bool:
    return needs.workers <= room.workers and needs.sent <= room.sent and needs.late <= room.late


@cache
def _late(name: str) -> str:
    return f"late {name}"


def _with(part: Part, index: int, attempt: Attempt) -> Part:
    token, record, before, truth, issue, attempts = part
    return Part(token, record, before, truth, issue, (*attempts[:index], attempt, *attempts[index + 1 :]))


def _heard(part: Part, index: int, answer: Answer) -> Part:
    """The reply to a claim reaches the worker that waits for it."""
    attempt = part.attempts[index]
    works = isinstance(answer.said, Claim)
    return _with(part, index, attempt._replace(phase=WORKING) if works else left(attempt))


def _granted(truth: Truth, claim: Claim, times: Times) -> Truth:
    life, top = claim.record.expires_at - BASE, min(max(truth.top, claim.fence), HIGHEST)
    if claim.record.consumed:
        return Truth(SETTLED, 0, life, top)
    return Truth(CLAIMED if claim.record.takeover else FIRM, times.lease, life, top)


def _settled(truth: Truth, state: State, record: Record | None, times: Times) -> Truth:
    """What is true after the owner's word counted."""
    if record is None:
        return Truth()
    life = record.expires_at - BASE
    if state is State.ISSUED:
        return Truth(FREE, 0, life, truth.top)
    if state is State.RUNNING:
        return truth._replace(lease=times.lease, life=life)
    return Truth(SETTLED, 0, life)


def _described(record: Record | None) -> str:
    if record is None:
        return "gone"
    if record.consumed:
        return "consumed"
    return f"{record.state}{'' if record.takeover or record.state is not State.RUNNING else ', takeover off'}"
