"""One request to a guarded view, from the hook that claims to the answer that is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from flask import Response, after_this_request
from werkzeug.exceptions import HTTPException

from ..core.current import enter_hold, leave_hold
from ..core.errors import Duplicate, IdempotencyError, InProgress, RecordInvalid, StoreUnavailable
from ..core.heartbeat import heartbeat
from ..core.hold import Hold, Terms
from ..core.keys import digest, token_digest
from . import identity, policies, snapshot, tokens
from .cache import carries_token, keep_private
from .content import Content, drain
from .outcome import Outcome, outcome_of, outcome_of_error
from .present import present
from .problems import as_http
from .rules import Rules

_ATTRIBUTE: Final = "_idempotency_attempt"
_FAILURE: Final = 400
_UNASKED: Final = object()

_logger = logging.getLogger(__name__)


class Attempt:
    """Claims once, in the hook or in the wrapper; settles once, whatever happens in between."""

    __slots__ = (
        "_content",
        "_raised",
        "_request",
        "_stand_in",
        "_unguarded",
        "_verified",
        "_viewer",
        "entered",
        "flashes",
        "hold",
        "outcome",
        "refusal",
        "rules",
    )

    def __init__(self, rules: Rules, request: Any) -> None:
        self.rules = rules
        self._request = request
        self.hold: Hold | None = None
        self.refusal: IdempotencyError | HTTPException | None = None
        self.entered = False
        self.outcome: Outcome | None = None
        self._raised: HTTPException | None = None
        self._stand_in: HTTPException | None = None
        self.flashes: list[tuple[str, str]] = []
        self._unguarded = False
        self._content: Content | None = None
        self._verified: Any = _UNASKED
        self._viewer: str | None = None
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
            self._content = Content(self._request, self.rules.max_body)
        return self._content

    @property
    def viewer(self) -> str:
        """Whom the answer may be shown to."""
        if self._viewer is None:
            self._viewer = identity.viewer(self._request, self._principal())
        return self._viewer

    def _principal(self) -> str | None:
        """Return the verified principal; asked for once, in the wrapper, when the app knows who is there."""
        if self._verified is _UNASKED:
            self._verified = identity.verified_principal(self.rules.principal)
        return self._verified  # type: ignore[no-any-return]

    def claim(self) -> None:
        """Claim; a refusal waits until the view would have run."""
        try:
            self.hold = self.rules.guard.claim(self._terms())
        except (IdempotencyError, HTTPException) as error:
            self.refusal = error

    def enter(self) -> None:
        """Let the view run, or raise the answer that stands in its place."""
        if self.hold is None and self.refusal is None:
            self.claim()
        if self.refusal is not None and not self._passes(self.refusal):
            self._stand_in = self._answer(self.refusal)
            raise self._stand_in
        if self.rules.keeps_answer:
            # Asked before the view: one that logs somebody in answers the one who was there.
            _ = self.viewer
        self.entered = True

    def returned(self, value: Any) -> None:
        """The view returned."""
        self._judge(outcome_of(value))
        self._leave()

    def raised(self, error: BaseException) -> None:
        """The view raised: an HTTPException is an answer like another, everything else a failure."""
        if isinstance(error, HTTPException):
            self._raised = error
            self._judge(outcome_of_error(error))
        else:
            self._fail()
        self._leave()

    def finish(self, response: Response) -> Response:
        """The answer is made: keep it, or give back a claim whose view was never entered."""
        if self.refusal is not None and not self._unguarded and not drain(self._request):
            response.headers["Connection"] = "close"
        if self.refusal is not None and snapshot.REPLAYED in response.headers:
            # Flask made a streamed copy of what was raised: compression and the like treat those in another way.
            response.make_sequence()
        hold = self.hold
        if hold is not None and not hold.settled:
            if carries_token(self._request):
                keep_private(response)
            if self.outcome is not None:
                hold.complete(self._kept(response, self.outcome))
            elif not self.entered:
                hold.restore()
        return response

    def abandon(self) -> None:
        """The net under :meth:`finish`, which is skipped when an error is propagated; a claim without a reply ends
        here."""
        lost = getattr(self.refusal, "lost", None)
        if lost is not None and self.outcome is None:
            # Costs no time: after a slow failure the breaker is open, and it is released when the store answers again.
            lost.release()
        hold = self.hold
        if hold is None or hold.settled:
            return
        if self.entered:
            hold.complete()  # it succeeded, or final= broke on what it answered: its effect may have happened
        else:
            hold.restore()

    def forget(self) -> None:
        """Leave no garbage that only the collector finds: a traceback holds the frames, and they the exception."""
        if self._stand_in is not None:
            self._stand_in.__traceback__ = None
        self.refusal = self._raised = self._stand_in = None

    def _terms(self) -> Terms:
        rules, request = self.rules, self._request
        token = tokens.find(rules.token_locations, request, rules.token_header, rules.token_field, self.content)
        return Terms(
            token_digest(token),
            token=True,
            lease=rules.lease,
            life=rules.token_ttl,
            ttl=rules.result_ttl,
            scene=rules.scene,
            binding=rules.bindings.of(rules.binding, request, self._principal),
            fingerprint=self._fingerprint(),
            description=rules.description,
            restore=rules.restore_on_error,
            consume=rules.consume,
        )

    def _fingerprint(self) -> str:
        rules, request, wanted = self.rules, self._request, self.rules.fingerprint
        if wanted is False:
            return digest(request.method, request.path)
        if callable(wanted):
            return digest(request.method, request.path, str(wanted(**(request.view_args or {}))))
        return self.content.fingerprint(
            token_fields=(rules.token_field, rules.csrf_field),
            fields=wanted if isinstance(wanted, tuple) else None,
            ignore=rules.ignore,
        )

    def _passes(self, error: IdempotencyError | HTTPException) -> bool:
        """Return whether the view runs unguarded, since the app wants that while the store is down."""
        if not isinstance(error, StoreUnavailable) or self.rules.store_down != "pass":
            return False
        self.rules.guard.tell("unguarded", scene=self.rules.scene, reason=error.reason)
        self._unguarded = True
        return True

    def _answer(self, error: IdempotencyError | HTTPException) -> HTTPException:
        if isinstance(error, HTTPException):
            return error  # the framework's own, as a body that is too large
        if not isinstance(error, Duplicate | InProgress):
            return as_http(error, self.rules.answers)
        answer = policies.answer(error, self.rules, lambda: self.viewer)
        if isinstance(answer, RecordInvalid):
            self.rules.guard.tell("record_invalid", scene=self.rules.scene, reason="its result cannot be read")
        return answer

    def _judge(self, outcome: Outcome) -> None:
        hold, rules = self.hold, self.rules
        failed = outcome.status_code >= _FAILURE if rules.final is None else not rules.final(outcome)
        if hold is not None and hold.given_back:
            hold.restore()
        elif not failed:
            self.outcome = outcome
        elif rules.final is None and outcome.status_code < 500 and hold is not None:
            hold.restore()  # a 4xx: nothing happened, whatever restore says
        else:
            self._fail()

    def _fail(self) -> None:
        if self.hold is None:
            return
        if self.rules.restore_on_error:
            self.hold.restore()
        else:
            self.hold.fail()

    def _leave(self) -> None:
        """A view that failed may be called again, by a decorator that tries twice: that takes a claim of its own."""
        if self.hold is not None and self.hold.settled:
            self.hold = self._raised = None
            self.entered = False

    def _kept(self, response: Response, outcome: Outcome) -> bytes | None:
        """Return what is kept of the answer; None if the view succeeded but no good answer came out above it."""
        if not self.rules.keeps_answer or (response.status_code >= _FAILURE > outcome.status_code):
            return None
        try:
            kept = snapshot.capture(
                self._own(response),
                self.rules.max_result,
                viewer=self.viewer,
                open=bool(self.viewer) or "HTTP_COOKIE" not in self._request.environ,
                flashes=tuple(self.flashes),
            )
        except Exception:
            # Never trade the first answer for the record.
            _logger.exception("The answer of scene %s could not be captured; it is done without one.", self.rules.scene)
            return None
        return snapshot.pack(kept) if kept is not None else None

    def _own(self, response: Any) -> Any:
        """Flask makes a streamed copy of an answer that was raised, of which nothing could be kept: return the one in
        the exception instead, or read the copy of what werkzeug wrote."""
        if self._raised is None or response.is_sequence:
            return response
        if self._raised.response is not None:
            return self._raised.response
        response.make_sequence()
        return response


def abandon(_: BaseException | None) -> None:
    """After every request, even one whose error is propagated."""
    attempt: Attempt | None = vars(present()).pop(_ATTRIBUTE, None)  # request and attempt hold each other
    if attempt is not None:
        attempt.abandon()
        attempt.forget()


def guarded_call(attempt: Attempt, view: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run a view under its claim and report how it went."""
    attempt.enter()
    with _Work(attempt.hold):
        try:
            value = view(*args, **kwargs)
        except BaseException as error:
            attempt.raised(error)
            raise
        attempt.returned(value)
        return value


async def guarded_await(attempt: Attempt, view: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The same for an async view."""
    attempt.enter()
    with _Work(attempt.hold):
        try:
            value = await view(*args, **kwargs)
        except BaseException as error:
            attempt.raised(error)
            raise
        attempt.returned(value)
        return value


class _Work:
    """The view at work: ``current_claim`` speaks of its hold, and the heartbeat extends it."""

    __slots__ = ("_before", "_hold", "_watched")

    def __init__(self, hold: Hold | None) -> None:
        self._hold = hold
        self._watched = hold is not None and not hold.terms.consume

    def __enter__(self) -> None:
        self._before = enter_hold(self._hold)
        if self._watched and self._hold is not None:
            heartbeat.add(self._hold)

    def __exit__(self, *_: object) -> None:
        if self._watched and self._hold is not None:
            heartbeat.remove(self._hold)
        leave_hold(self._before)
