"""``lock=`` and ``interval=``: claims beside the one of the token or key, each on a record of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from flask import Request

from ..core.hold import Hold, Terms
from ..core.keys import digest
from . import sources
from .content import Content

if TYPE_CHECKING:
    from .rules import Rules


class Extras:
    """The further holds of one attempt."""

    __slots__ = ("_interval", "lock")

    def __init__(self) -> None:
        self.lock: Hold | None = None
        self._interval: Hold | None = None

    def claim(self, rules: Rules, request: Request, content: Content, whose: Callable[[], str], until: float) -> None:
        """Claim what the view asks for.

        :param until: the monotonic time until which a lock is waited for; 0 if it is not.
        :raises TooSoon: the same was begun less than the interval ago.
        :raises Locked: another operation holds the lock.
        :raises KeyMissing: there is nothing to lock.
        """
        if rules.lock is not None and self.lock is None:
            value = sources.computed(rules.lock, "the lock", request, content)
            terms = _terms(rules, "lock", digest("lock", value), rules.lease)
            self.lock = rules.guard.claim(terms, wait=until - time.monotonic() if until else 0.0)
        if rules.interval and self._interval is None:
            who = whose() or rules.bindings.of("ip", request, lambda: None)
            terms = _terms(rules, "interval", digest("interval", rules.scene, who), rules.interval)
            self._interval = rules.guard.claim(terms)

    def leave(self, *, succeeded: bool) -> None:
        """The view is over: open the lock, and let the interval pass only if it succeeded."""
        if succeeded:
            self._interval = None
        self.give_back()

    def give_back(self) -> None:
        """Give back what is still held: the view was never entered, or failed."""
        for hold in (self.lock, self._interval):
            if hold is not None:
                hold.restore()
        self.lock = self._interval = None


def _terms(rules: Rules, kind: str, name: str, lease: float) -> Terms:
    return Terms(
        name,
        token=False,
        lease=lease,
        life=lease,
        ttl=lease,
        scene=rules.scene,
        description=rules.description,
        kind=kind,
    )
