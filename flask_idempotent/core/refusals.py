"""What is said of a claim that a store refused."""

from __future__ import annotations

import math
from typing import Final

from .errors import (
    Duplicate,
    Failed,
    IdempotencyError,
    InProgress,
    KeyReused,
    Locked,
    RecordInvalid,
    TokenForeign,
    TokenReused,
    TokenUnknown,
    TooSoon,
)
from .hold import Terms
from .record import MICROSECONDS, Absent, Holder, State, Verdict

LONGEST_HINT: Final = 2.0
"""Seconds: the longest Retry-After for a running claim. It is a hint, not the lease."""
_BUSY: Final[dict[str, type[IdempotencyError]]] = {"lock": Locked, "interval": TooSoon}


def refusal(terms: Terms, answer: Holder | Absent) -> IdempotencyError:
    """Return what to raise.

    :param terms: what was asked for.
    :param answer: what the store said.
    """
    if isinstance(answer, Absent):
        return TokenUnknown()
    record, verdict = answer.record, answer.verdict
    if record is None or verdict is Verdict.DAMAGED:
        return RecordInvalid()
    if terms.kind:
        busy = _BUSY[terms.kind]()
        busy.retry_after = max(1, math.ceil((record.held_until - answer.now) / MICROSECONDS))
        return busy
    if verdict is Verdict.DONE:
        return Duplicate(state=State.DONE, record=record, replayer=lambda: record.result)
    if verdict is Verdict.FOREIGN:
        return TokenForeign()
    if verdict is Verdict.REUSED:
        return TokenReused() if terms.token else KeyReused()
    if verdict is Verdict.FAILED:
        return Failed()
    left = answer.seconds_left
    error = InProgress(state=State.RUNNING, seconds_left=left, record=record)
    error.retry_after = max(1, math.ceil(min(left, LONGEST_HINT)))
    return error
