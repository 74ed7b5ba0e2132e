"""The view at work under its claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.current import enter_hold, leave_hold
from ..core.heartbeat import heartbeat
from .attempt import Attempt


def guarded_call(attempt: Attempt, view: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run a view under its claim and report how it went."""
    answer = attempt.enter()
    if answer is not None:
        return answer
    with _Work(attempt):
        try:
            value = view(*args, **kwargs)
        except BaseException as error:
            attempt.raised(error)
            raise
        attempt.returned(value)
        return value


async def guarded_await(attempt: Attempt, view: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The same for an async view."""
    answer = attempt.enter()
    if answer is not None:
        return answer
    with _Work(attempt):
        try:
            value = await view(*args, **kwargs)
        except BaseException as error:
            attempt.raised(error)
            raise
        attempt.returned(value)
        return value


class _Work:
    """``current_claim`` speaks of its hold, and the heartbeat extends what may be extended."""

    __slots__ = ("_before", "_hold", "_watched")

    def __init__(self, attempt: Attempt) -> None:
        self._hold = attempt.spoken_of
        self._watched = [
            hold for hold in (attempt.hold, attempt.extras.lock) if hold is not None and not hold.terms.consume
        ]

    def __enter__(self) -> None:
        self._before = enter_hold(self._hold)
        for hold in self._watched:
            heartbeat.add(hold)

    def __exit__(self, *_: object) -> None:
        for hold in self._watched:
            heartbeat.remove(hold)
        leave_hold(self._before)
