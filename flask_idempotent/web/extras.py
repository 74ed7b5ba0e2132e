"""``lock=`` and ``interval=``: claims beside the one of the token or key, each on a record of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flask import Request

from ..core.errors import InProgress, StoreUnavailable
from ..core.heartbeat import heartbeat
from ..core.hold import Hold, Terms
from ..core.keys import digest
from ..core.record import State
from . import sources
from .content import Content
from .terms import terms_beside

if TYPE_CHECKING:
    from .rules import Rules

_LONG: Final = 1 / 6  # of a lease: what the view's own heartbeat may be late by


class Extras:
    """The further holds of one attempt."""

    __slots__ = ("_lost", "interval", "lock")

    def __init__(self) -> None:
        self.lock: Hold | None = None
        self.interval: Hold | None = None
        self._lost: Hold | None = None

    def claim(
        self,
        rules: Rules,
        request: Request,
        content: Content,
        principal: Callable[[], str | None],
        until: float,
        beside: Hold | None,
    ) -> None:
        """Claim what the view asks for.

        :param principal: returns the verified principal.
        :param until: the monotonic time until which a lock is waited for; 0 if it is not.
        :param beside: the claim of the token or key, which is held while the lock is waited for.
        :raises TooSoon: the same was begun less than the interval ago.
        :raises Locked: another operation holds the lock.
        :raises InProgress: the token or key was lost to another owner while the lock was waited for.
        :raises KeyMissing: there is nothing to lock.
        """
        if rules.lock is not None and self.lock is None:
            value = sources.computed(rules.lock, "the lock", request, content)
            terms = terms_beside("lock", digest("lock", value), rules.lease, rules)
            wait = until - time.monotonic() if until else 0.0
            if wait <= 0 or beside is None or beside.terms.consume:
                self.lock = self._claimed(rules, terms, wait)
            else:
                self._wait_for_lock(rules, terms, wait, beside)
        if rules.interval and self.interval is None:
            # Not the name space of a key, which a client chooses with its credentials.
            who = principal() or rules.bindings.of("ip", request, principal)
            terms = terms_beside("interval", digest("interval", rules.scene, who), rules.interval, rules)
            self.interval = self._claimed(rules, terms, 0.0)

    def end(self, *, succeeded: bool) -> None:
        """The request is over, or the view failed and may be called again: open the lock, and let the interval pass
        only if the view succeeded."""
        if self._lost is not None and not (succeeded and self._lost.terms.kind == "interval"):
            self._lost.release()
        if self.lock is not None:
            self.lock.restore()
        if self.interval is not None and not succeeded:
            self.interval.restore()
        self.lock = self.interval = self._lost = None

    def _claimed(self, rules: Rules, terms: Terms, wait: float) -> Hold:
        try:
            return rules.guard.claim(terms, wait=wait)
        except StoreUnavailable as error:
            # Its reply never came: it may stand in the store all the same, and must not until the end of its lease.
            self._lost, error.lost = error.lost, None
            raise

    def _wait_for_lock(self, rules: Rules, terms: Terms, wait: float, beside: Hold) -> None:
        began = time.monotonic()
        with heartbeat.watch(beside):
            self.lock = self._claimed(rules, terms, wait)
        if time.monotonic() - began > beside.terms.lease * _LONG and not beside.extend():
            error = InProgress(state=State.RUNNING)
            error.retry_after = 1
            raise error
