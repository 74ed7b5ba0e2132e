"""The view at work under its claim: ``current_claim`` speaks of its hold, and the heartbeat extends what may be
extended."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Token
from typing import Any

from ..core.current import enter_hold, leave_hold
from ..core.heartbeat import heartbeat
from ..core.hold import Hold
from .attempt import Attempt


def guarded_call(attempt: Attempt, view: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run a view under its claim and report how it went."""
    answer = attempt.enter()
    if answer is not None:
        return answer
    before, watched = enter_hold(attempt.spoken_of), _watched(attempt)
    try:
        value = view(*args, **kwargs)
    except BaseException as error:
        attempt.raised(error)
        raise
    else:
        attempt.returned(value)
        return value
    finally:
        _leave(before, watched)


async def guarded_await(attempt: Attempt, view: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The same for an async view."""
    answer = attempt.enter()
    if answer is not None:
        return answer
    before, watched = enter_hold(attempt.spoken_of), _watched(attempt)
    try:
        value = await view(*args, **kwargs)
    except BaseException as error:
        attempt.raised(error)
        raise
    else:
        attempt.returned(value)
        return value
    finally:
        _leave(before, watched)


def _watched(attempt: Attempt) -> list[Hold]:
    """Let the heartbeat extend what may be extended, and return it."""
    watched = []
    for hold in (attempt.hold, attempt.extras.lock):
        if hold is not None and not hold.terms.consume:
            heartbeat.add(hold)
            watched.append(hold)
    return watched


def _leave(before: Token[Hold | None], watched: list[Hold]) -> None:
    for hold in watched:
        heartbeat.remove(hold)
    leave_hold(before)
