"""An attempt to claim a key, and what the worker that makes it may do by itself; for :mod:`tests.core.explore`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from flask_idempotent.core.record import State

from .promises import CURRENT, NONE

ASKING, WORKING, KEPT, LEFT = "asking", "working", "kept", "left"
CLAIM: Final = "claim"
SETTLES: Final = {
    "done": (State.DONE, False),
    "result": (State.DONE, True),
    "restore": (State.ISSUED, False),
    "fail": (State.FAILED, False),
    "extend": (State.RUNNING, False),
}
"""What an owner may send: the state that it asks for, and whether a result comes with it."""
_ENDINGS: Final = {(kind, late) for kind in ("done", "result", "fail") for late in (False, True)}


class Attempt(NamedTuple):
    """One owner id: its worker, as far as that has not left, and its commands on their way.

    A command is its kind, and whether it is a late copy of one that has come. A worker waits for the reply to its claim
    only: what it does after a settle does not depend on the reply, and to send that again is what a copy does, too.
    Newer is an attempt whose claim has a fence above the record's, which another owner has, or nobody.
    """

    phase: str = ASKING
    status: str = NONE  # see promises
    owns: bool = False
    newer: bool = False
    owned: bool = False  # the record as it was before the last write
    was_newer: bool = False  # than that one
    net: tuple[tuple[str, bool], ...] = ((CLAIM, False),)

    def __str__(self) -> str:
        commands = " + ".join(f"late {kind}" if late else kind for kind, late in self.net)
        return f"{self.phase}{', owner' if self.owns else ''}{': ' if commands else ''}{commands}"


class Load(NamedTuple):
    """How many workers are at work, how many commands are on their way, and how many late copies."""

    workers: int
    sent: int
    late: int


@cache
def load(attempt: Attempt) -> Load:
    late = sum(copy for _, copy in attempt.net)
    return Load(int(attempt.phase != LEFT), len(attempt.net) - late, late)


@cache
def moves(attempt: Attempt, settles: tuple[str, ...]) -> tuple[tuple[str, Attempt], ...]:
    """Return what its worker may do by itself."""
    return tuple(_moves(attempt, settles))


def _moves(attempt: Attempt, settles: tuple[str, ...]) -> Iterator[tuple[str, Attempt]]:
    if attempt.phase == LEFT:
        return
    yield "crash", left(attempt)
    if attempt.phase == ASKING:
        if (CLAIM, False) not in attempt.net:
            yield "send claim again", _sent(attempt, CLAIM, ASKING)
        yield "release", _sent(attempt, "restore", LEFT)
        return
    if "extend" in settles and ("extend", False) not in attempt.net:
        yield "send extend", _sent(attempt, "extend", attempt.phase)
    if attempt.phase == KEPT:
        yield "send result", _sent(attempt, "result", LEFT)
        return
    for kind in settles:
        if kind not in ("extend", "result"):
            keeps = kind == "done" and "result" in settles
            yield f"send {kind}", _sent(attempt, kind, KEPT if keeps else LEFT)


def _sent(attempt: Attempt, kind: str, phase: str) -> Attempt:
    return attempt._replace(phase=phase, net=(*attempt.net, (kind, False)))


def left(attempt: Attempt) -> Attempt:
    """Nobody waits any more: a command that comes now, and its copy later, might as well have come unheard before."""
    return attempt._replace(phase=LEFT, net=tuple({(kind, True) for kind, _ in attempt.net}))


@cache
def travelled(attempt: Attempt, kind: str, late: bool, leaves_a_copy: bool) -> Attempt:
    """Return it when one of its commands is no longer on its way."""
    net = set(attempt.net) - {(kind, late)} | ({(kind, True)} if leaves_a_copy else set())
    return attempt._replace(net=tuple(net))


@cache
def written(attempt: Attempt, newer: bool, failover: bool) -> Attempt:
    """Return it when somebody else has written the record.

    :param newer: whether it is newer than what was written.
    """
    status = NONE if attempt.status in CURRENT else attempt.status
    return attempt._replace(
        status=status,
        owns=False,
        newer=newer,
        owned=failover and attempt.owns,
        was_newer=failover and attempt.newer,
    )


@cache
def tidy(attempt: Attempt, record: bool, before: bool, older: bool, was_older: bool, forgets: bool) -> Attempt:
    """Return it without what can make no difference any more.

    :param record: whether there is one.
    :param before: whether there was one that a failover could bring back.
    :param older: whether what is newer than the record can change it.
    :param was_older: the same of the one before.
    :param forgets: no failover can make it the owner of the record again.
    """
    owns, owned = record and attempt.owns, before and attempt.owned
    ends = attempt.phase != LEFT or not _ENDINGS.isdisjoint(attempt.net)
    newer = attempt.newer and older and ends and not owns and attempt.phase != ASKING
    was_newer = attempt.was_newer and was_older and ends and not owned
    status = NONE if forgets and not owns and not newer else attempt.status
    return Attempt(attempt.phase, status, owns, newer, owned, was_newer, tuple(sorted(attempt.net)))
