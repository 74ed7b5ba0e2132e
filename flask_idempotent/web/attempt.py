"""One request to a guarded view, from the hook that claims to the answer that is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from flask import Response, after_this_request
from werkzeug.exceptions import HTTPException

from ..core.errors import Duplicate, IdempotencyError, InProgress, RecordInvalid, StoreUnavailable
from ..core.hold import Hold
from . import policies, sources
from .asker import Asker
from .cache import carries_token, keep_private
from .content import Content
from .crossorigin import shows_replay
from .extras import Extras
from .keeping import kept
from .outcome import Outcome, outcome_of, outcome_of_error
from .present import present
from .problems import as_http
from .rules import Rules
from .terms import terms_of
from .unread import drain

_ATTRIBUTE: Final = "_idempotency_attempt"
_FAILURE: Final = 400


class Attempt:
    """Claims once, in the hook or in the wrapper; settles once, whatever happens in between."""

    __slots__ = (
        "_asked",
        "_content",
        "_stand_in",
        "_unguarded",
        "_until",
        "answered_by",
        "asker",
        "entered",
        "extras",
        "flashes",
        "hold",
        "outcome",
        "refusal",
        "request",
        "rules",
    )

    def __init__(self, rules: Rules, request: Any) -> None:
        self.rules = rules
        self.request = request
        self.asker = Asker(request, rules.principal)
        self.hold: Hold | None = None
        self.extras = Extras()
        self.refusal: IdempotencyError | HTTPException | None = None
        self.entered = False
        self.outcome: Outcome | None = None
        self.answered_by: HTTPException | None = None
        self._asked = False
        self._until = 0.0
        self._stand_in: HTTPException | None = None
        self.flashes: list[tuple[str, str]] = []
        self._unguarded = False
        self._content: Content | None = None
        setattr(request, _ATTRIBUTE, self)
        # Registered before anything of the app's, so it sees the answer before every other after-request hook.
        after_this_request(self.finish)

    @staticmethod
    def of(request: Any) -> Attempt | None:
        """Return the attempt of a request, if it has one."""
        return getattr(request, _ATTRIBUTE, None)

    @property
    def content(self) -> Content:
        """What the request carries."""
        if self._content is None:
            self._content = Content(self.request, self.rules.max_body)
        return self._content

    @property
    def spoken_of(self) -> Hold | None:
        """What the view's ``current_claim`` is: the token or key; where there is none the interval."""
        return self.hold or self.extras.interval

    def claim(self) -> None:
        """Claim; a refusal waits until the view would have run."""
        self._asked = True
        rules = self.rules
        self._until = time.monotonic() + rules.wait if rules.wait else 0.0
        try:
            found = sources.find(rules, self.request, self.content, self.asker.namespace) if rules.sources else None
            if found is not None:
                terms = terms_of(found, rules, self.request, self.content, self.asker.principal)
                self.hold = rules.guard.claim(terms, wait=rules.wait)
        except (IdempotencyError, HTTPException) as error:
            self.refusal = error

    def enter(self) -> Any:
        """Let the view run, which is None, or answer in its place: return what no decorator can spoil, raise the rest.

        :returns: a response, in place of the view's.
        """
        if not self._asked:
            self.claim()
        if self.refusal is None and self.rules.has_extras:
            self._claim_extras()
        if self.refusal is not None and not self._passes(self.refusal):
            answer = self._answer(self.refusal)
            if self.rules.outermost and not isinstance(answer, HTTPException):
                return answer  # raised, Flask would copy it, which takes longer than all the rest
            self._stand_in = answer if isinstance(answer, HTTPException) else HTTPException(response=answer)
            raise self._stand_in
        if self.rules.keeps_answer and self.hold is not None:
            # Asked before the view: one that logs somebody in answers the one who was there.
            self.asker.viewer()
        self.entered = True
        return None

    def returned(self, value: Any) -> None:
        """The view returned."""
        self._judge(outcome_of(value))

    def raised(self, error: BaseException) -> None:
        """The view raised: an HTTPException is an answer like another, everything else a failure."""
        if isinstance(error, HTTPException):
            self.answered_by = error
            self._judge(outcome_of_error(error))
        else:
            self._fail()

    def finish(self, response: Response) -> Response:
        """The answer is made: keep it, or give back a claim whose view was never entered."""
        if self.refusal is not None:
            if not self._unguarded and not drain(self.request):
                response.headers["Connection"] = "close"
            if shows_replay(self.request):
                # Flask made a streamed copy of what was raised: compression and the like treat those in another way.
                response.make_sequence()
        if not self.entered:
            self.extras.end(succeeded=False)
        hold = self.hold
        if hold is not None and not hold.settled:
            if carries_token(self.request):
                keep_private(response)
            if self.outcome is not None:
                hold.complete(self._kept(response, self.outcome.status_code))
            elif not self.entered:
                hold.restore()
        # After the answer is kept: the decorators above the view may have had work to do under the lock.
        self.extras.end(succeeded=True)
        return response

    def abandon(self) -> None:
        """The net under :meth:`finish`, which is skipped when an error is propagated; a claim without a reply ends
        here."""
        if self.outcome is None:
            self._release_lost()
        hold = self.hold
        if hold is not None and not hold.settled:
            if self.entered:
                hold.complete()  # it succeeded, or final= broke on what it answered: its effect may have happened
            else:
                hold.restore()
        self.extras.end(succeeded=self.entered)

    def forget(self) -> None:
        """Leave no garbage that only the collector finds: a traceback holds the frames, and they the exception."""
        if self._stand_in is not None:
            self._stand_in.__traceback__ = None
        self.refusal = self.answered_by = self._stand_in = None

    def _claim_extras(self) -> None:
        try:
            self.extras.claim(self.rules, self.request, self.content, self.asker.principal, self._until, self.hold)
        except (IdempotencyError, HTTPException) as error:
            self.refusal = error

    def _passes(self, error: IdempotencyError | HTTPException) -> bool:
        """Return whether the view runs unguarded, since the app wants that while the store is down."""
        if not isinstance(error, StoreUnavailable) or self.rules.store_down != "pass":
            return False
        self.rules.guard.tell("unguarded", scene=self.rules.scene, reason=error.reason)
        self._unguarded = True
        return True

    def _answer(self, error: IdempotencyError | HTTPException) -> Response | HTTPException:
        if isinstance(error, HTTPException):
            return error  # the framework's own, as a body that is too large
        if not isinstance(error, (Duplicate, InProgress)):
            return as_http(error, self.rules.answers)
        answer = policies.answer(error, self.rules, self.asker.viewer, "HTTP_COOKIE" not in self.request.environ)
        if isinstance(answer, RecordInvalid):
            self.rules.guard.tell("record_invalid", scene=self.rules.scene, reason="its result cannot be read")
        return answer

    def _judge(self, outcome: Outcome) -> None:
        rules = self.rules
        failed = outcome.status_code >= _FAILURE if rules.final is None else not rules.final(outcome)
        if (claim := self.spoken_of) is not None and claim.given_back:
            self._give_up(Hold.restore)
        elif not failed:
            self.outcome = outcome
        elif rules.final is None and outcome.status_code < 500:
            self._give_up(Hold.restore)  # a 4xx: nothing happened, whatever restore says
        else:
            self._fail()

    def _fail(self) -> None:
        self._give_up(Hold.restore if self.rules.restore_on_error else Hold.fail)

    def _give_up(self, ending: Callable[[Hold], None]) -> None:
        """A view that failed may be called again, by a decorator that tries twice: that takes a claim of its own. The
        lock is opened before the key is free: who comes with the same key then finds nothing that is still held."""
        self.extras.end(succeeded=self.hold is not None and self.hold.kept)
        if self.hold is not None:
            ending(self.hold)
        self._release_lost()
        self.hold = self.answered_by = self.refusal = None
        self.entered = self._asked = self._unguarded = False

    def _release_lost(self) -> None:
        """Give back a claim without a reply. Costs no time: after a slow failure the breaker is open, and it is
        released when the store answers again."""
        lost = getattr(self.refusal, "lost", None)
        if lost is not None:
            lost.release()

    def _kept(self, response: Response, status: int) -> bytes | None:
        """Return what is kept of the answer; None if the view succeeded but no good answer came out above it."""
        if not self.rules.keeps_answer or response.status_code >= _FAILURE > status:
            return None
        return kept(self, response)


def abandon(_: BaseException | None) -> None:
    """After every request, even one whose error is propagated."""
    attempt: Attempt | None = present().__dict__.pop(_ATTRIBUTE, None)  # request and attempt hold each other
    if attempt is not None:
        attempt.abandon()
        attempt.forget()
