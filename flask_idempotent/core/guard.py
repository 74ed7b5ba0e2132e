"""The guard turns a store's answers into words: a hold on the work, or a refusal that is raised."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from typing import Final

from . import events
from .breaker import Breaker
from .errors import Duplicate, IdempotencyError, InProgress, RecordInvalid, StoreUnavailable
from .hold import Hold, Terms
from .ids import new_owner
from .keys import store_key
from .record import Absent, Claim, Holder, Record, State, Verdict
from .refusals import refusal
from .store import Store

BUDGET: Final = 1.0
"""Seconds in which a lost command may be sent again."""
_SETTLE_PAUSES: Final = (0.0, 0.05, 0.2, 0.4)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
"""Seconds between two looks of a duplicate that waits."""
_MOST_OWED: Final = 1000
_UNSPOKEN: Final = {
    "lock": frozenset({"claimed", "taken_over", "restored"}),
    "interval": frozenset({"claimed", "taken_over", "restored", "completed", "claim_lost"}),
}
"""What locks and intervals do all the time; an interval is lost whenever the view takes longer."""
_PAID_AT_ONCE: Final = 5

_logger = logging.getLogger("flask_idempotent")


class Guard:
    """Claims in one store under one prefix.

    :param store: where the records lie.
    :param prefix: name space in the store.
    :param listener: is told every event, after it was logged.
    """

    def __init__(self, store: Store, *, prefix: str = "idempotency", listener: events.Listener | None = None) -> None:
        self.store = store
        self.prefix = prefix
        self._listener = listener
        self._breaker = Breaker()
        self._owed: deque[tuple[Hold, State]] = deque(maxlen=_MOST_OWED)

    def issue(self, digest: str, *, binding: str, scene: str, ttl: float) -> None:
        """Record a token.

        :param ttl: the token's life in seconds.
        :raises StoreUnavailable: it could not be recorded.
        """
        key = store_key(self.prefix, digest)
        try:
            self._breaker.call(self.store.issue, key, binding=binding, scene=scene, ttl=ttl)
        except RuntimeError:
            raise  # misconfigured: it says what to mend
        except Exception as cause:
            # A store of the app's own may err in ways of its own; no page fails for that.
            error = cause if isinstance(cause, StoreUnavailable) else _unavailable(cause)
            self.tell("store_unavailable", digest=digest, scene=scene, reason=error.describe())
            error.retry_after = 1
            raise error from error.__cause__
        self._pay()
        self.tell("issued", digest=digest, scene=scene)

    def claim(self, terms: Terms, *, wait: float = 0.0) -> Hold:
        """Claim, or raise the refusal.

        :param wait: seconds for which to wait, at most, while another claim is running: until it is done, or gives up
            what is then claimed here.
        :raises IdempotencyError: the refusal; :class:`StoreUnavailable` carries the hold that may have been taken, as
            ``lost``, to be released at the end.
        """
        hold = Hold(self, terms, new_owner())
        deadline = time.monotonic() + wait
        try:
            answer = self._claim_twice(hold)
            if wait:
                answer = self._wait(hold, answer, deadline)
        except StoreUnavailable as error:
            self.tell("store_unavailable", terms, reason=error.describe())
            error.retry_after = 1
            error.lost = hold
            raise
        if self._owed:
            self._pay()
        if isinstance(answer, Claim):
            hold.claim = answer
            self.tell("taken_over" if answer.taken else "claimed", terms)
            return hold
        raise self._told(terms, answer)

    def get(self, digest: str) -> Record | None:
        """Look a record up by its digest, as logs name it.

        :raises StoreUnavailable: the store cannot be reached.
        :raises RecordInvalid: it is damaged.
        """
        return self._breaker.call(self.store.get, store_key(self.prefix, digest))

    def extend(self, hold: Hold) -> bool:
        """Hold the claim for another lease; False if it was lost.

        :raises StoreUnavailable: the store cannot be reached.
        """
        claim, terms = hold.claim or self._unconfirmed(hold), hold.terms
        return self._breaker.call(self.store.settle, claim, state=State.RUNNING, hold=terms.lease, ttl=terms.life)

    def release(self, hold: Hold) -> None:
        """Give back a claim whose reply never came. It may lie in the store all the same, or come late, when a store
        that stood still reads what was sent to it: so it is asked again once the store answers. One that the breaker
        refused was never sent; of these there may be thousands, while what is owed is limited."""
        if not hold.sent:
            return
        self._owed.append((hold, State.ISSUED))
        self._pay()

    def owe(self, hold: Hold, state: State) -> None:
        """The store could not be told how the work ended: tell it once it answers, before the lease is over with luck.
        Without the result, which may be large: a duplicate then learns that it was done, and that is what counts."""
        self._owed.append((hold, state))

    def _pay(self) -> None:
        """Tell the store what it is owed, a little at a time."""
        for _ in range(min(len(self._owed), _PAID_AT_ONCE)):
            try:
                hold, state = self._owed.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                self._breaker.call(self._tell_once, hold, state)
            except StoreUnavailable:
                self._owed.append((hold, state))
                return

    def _tell_once(self, hold: Hold, state: State) -> None:
        if hold.claim is None:
            self._look_for(hold)
        self.store.settle(hold.claim or self._unconfirmed(hold), state=state, hold=0, ttl=hold.terms.ttl)

    def _look_for(self, hold: Hold) -> None:
        """The replies to a claim were lost. If it lies in the store, and took over, that is told here: once it is given
        back nobody can see it any more."""
        key = store_key(self.prefix, hold.terms.digest)
        try:
            record = self.store.get(key)
        except RecordInvalid:
            return
        if record is not None and record.owner == hold.owner:
            hold.claim = Claim(key, record)
            if record.taken:
                self.tell("taken_over", hold.terms, reason="its reply was lost; it is given back")

    def tell(
        self, name: str, terms: Terms | None = None, *, digest: str = "", scene: str = "", reason: str = ""
    ) -> None:
        """Log an event and hand it on."""
        if terms is not None and terms.kind and name in _UNSPOKEN[terms.kind]:
            return
        if terms is None:
            event = events.Event(name, digest, scene, "", reason)
        else:
            event = events.Event(name, terms.digest, terms.scene, terms.description, reason)
        events.log(_logger, event)
        if self._listener is not None:
            self._listener(event)

    def _claim(self, hold: Hold) -> Claim | Holder | Absent:
        terms, hold.sent = hold.terms, True
        return self.store.claim(
            store_key(self.prefix, terms.digest),
            owner=hold.owner,
            lease=terms.lease,
            ttl=terms.life,
            must_exist=terms.token,
            binding=terms.binding,
            scene="" if terms.kind else terms.scene,  # views of several scenes share a lock
            fingerprint=terms.fingerprint,
            takeover=terms.restore,
            consume=terms.consume,
        )

    def _wait(self, hold: Hold, answer: Claim | Holder | Absent, deadline: float) -> Claim | Holder | Absent:
        """Ask again while another claim is running, less and less often; waiters that came together do not ask
        together. The last look is at the deadline."""
        pause = _FIRST_PAUSE
        while isinstance(answer, Holder) and answer.verdict is Verdict.RUNNING:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            # When its lease is over, the claim may be taken over.
            time.sleep(min(left, pause * random.uniform(0.5, 1.5), max(answer.seconds_left, _FIRST_PAUSE)))  # noqa: S311  # no secret
            pause = min(2 * pause, _LONGEST_PAUSE)
            answer = self._claim_twice(hold)
        return answer

    def _claim_twice(self, hold: Hold) -> Claim | Holder | Absent:
        """A lost reply is no answer: the same owner asks again, once, if half of the budget is left."""
        self._breaker.check()
        started = time.monotonic()
        try:
            return self._breaker.watch(self._claim, hold)
        except StoreUnavailable:
            if time.monotonic() - started > BUDGET / 2:
                raise
            return self._breaker.watch(self._claim, hold)

    def settle(self, hold: Hold, state: State, result: bytes | None) -> bool:
        """Settle, and send it again within the budget: the store knows its owner. What is claimed beside a token or key
        is worth less time: while the breaker is open the store is not asked, it is owed that.

        :raises StoreUnavailable: no attempt was answered.
        """
        terms, deadline = hold.terms, time.monotonic() + BUDGET / 2
        claim = hold.claim or self._unconfirmed(hold)
        last: StoreUnavailable | None = None
        ask, pauses = (self._breaker.call, _SETTLE_PAUSES[:2]) if terms.kind else (self._breaker.watch, _SETTLE_PAUSES)
        for pause in pauses:
            if last is not None and time.monotonic() + pause > deadline:
                break
            if pause:
                time.sleep(pause)
            try:
                return ask(self.store.settle, claim, state=state, hold=terms.lease, ttl=terms.ttl, result=result)
            except StoreUnavailable as error:
                last = error
        raise last or StoreUnavailable()

    def _unconfirmed(self, hold: Hold) -> Claim:
        return Claim(store_key(self.prefix, hold.terms.digest), Record(State.RUNNING, owner=hold.owner))

    def _told(self, terms: Terms, answer: Holder | Absent) -> IdempotencyError:
        error = refusal(terms, answer)
        name = "duplicate" if isinstance(error, (InProgress, Duplicate)) else "refused"
        self.tell("record_invalid" if isinstance(error, RecordInvalid) else name, terms, reason=error.reason)
        return error


def _unavailable(cause: Exception) -> StoreUnavailable:
    error = StoreUnavailable()
    error.__cause__ = cause
    return error
