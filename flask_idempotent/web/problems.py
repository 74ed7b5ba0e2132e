"""Refusals as HTTP: each is its core class and werkzeug's class of its status at once, in three shapes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from flask import Flask
from werkzeug.exceptions import HTTPException, default_exceptions
from werkzeug.wrappers import Response

from ..core.errors import Duplicate, IdempotencyError, InProgress, ResponseUnavailable
from . import page

_TYPE: Final = "urn:flask-idempotency:"
_ENVELOPE_CODE: Final = 429  # whatever the status: the articles' clients know this one
_WORDED: Final = (Duplicate, InProgress, ResponseUnavailable)
"""What the configured message is said of."""
_TITLES: Final = {
    "token_missing": "Please open the form again",
    "token_invalid": "Please open the form again",
    "token_unknown": "This form is no longer valid",
    "token_foreign": "This form belongs elsewhere",
    "token_reused": "Sent before with other content",
    "scene_invalid": "Not the name of a scene",
    "key_missing": "An idempotency key is missing",
    "key_invalid": "The idempotency key is malformed",
    "key_reused": "The idempotency key was used before",
    "in_progress": "On its way",
    "duplicate": "Already done",
    "response_unavailable": "Already done",
    "failed": "It did not end well",
    "record_invalid": "Not carried out",
    "locked": "Busy at the moment",
    "too_soon": "A little too soon",
    "stale_version": "Changed in the meantime",
    "exists": "It exists already",
    "store_unavailable": "Not possible right now",
}


@dataclass(frozen=True, slots=True)
class Answers:
    """How refusals look in one app, or of one view.

    :param format: shape of the JSON: problem details (RFC 9457), or the articles' envelope.
    :param duplicate_status: HTTP status of a refused duplicate.
    :param message: what a person reads of a duplicate, or None for our own words.
    :param policy_url: where the rules are described; sent as a link.
    """

    format: Literal["problem", "envelope"] = "problem"
    duplicate_status: int = Duplicate.status
    message: str | None = None
    policy_url: str | None = None


class Refusal(IdempotencyError, HTTPException):
    """What the web layer raises; always also an instance of the core's class and of werkzeug's class of the status."""

    code: int
    answers: Answers
    data: dict[str, Any]
    """What flask-smorest's handler builds its own body and headers from."""
    given: Any = None
    """A response that somebody put in the place of ours."""

    @property
    def title(self) -> str:
        """A short heading, the same for every refusal of this reason."""
        return _TITLES.get(self.reason, self.reason.replace("_", " ").capitalize())

    @property
    def name(self) -> str:
        """The status's name and the reason: all that APIFlask's handler shows of an exception."""
        return f"{super().name} ({self.reason})"

    @property
    def response(self) -> Any:
        """The answer, never None: Flask-RESTful passes on an exception's own response and re-words every other."""
        return self.get_response()

    @response.setter
    def response(self, value: Any) -> None:
        self.given = value

    @property
    def more_headers(self) -> list[tuple[str, str]]:
        """The headers beside the content type."""
        headers = [("Cache-Control", "no-store"), ("Vary", "Accept")]
        if self.retry_after is not None:
            headers.append(("Retry-After", str(self.retry_after)))
        if self.answers.policy_url:
            headers.append(("Link", f'<{self.answers.policy_url}>; rel="describedby"'))
        return headers

    def replay(self) -> Any:
        """Return the first answer again.

        :raises ResponseUnavailable: nothing was kept, or it is not for this caller.
        """
        try:
            return cast("Duplicate", super()).replay()
        except ResponseUnavailable as error:
            raise as_http(error, self.answers) from None

    def get_headers(self, environ: Any = None, _scope: Any = None) -> list[tuple[str, str]]:
        """Return the headers, content type first."""
        return [("Content-Type", self._content_type(environ)), *self.more_headers]

    def get_body(self, environ: Any = None, _scope: Any = None) -> str:
        """Return the body in the shape that the client asked for."""
        if page.wants_html(environ):
            return self._page()
        members = self._envelope() if self.answers.format == "envelope" else self._problem()
        return json.dumps(members, ensure_ascii=False) + "\n"

    def get_response(self, environ: Any = None, _scope: Any = None) -> Any:
        """Return a new response: to the present request if no other is given, else as JSON."""
        if self.given is not None:
            return self.given
        return Response(self.get_body(environ), self.code, self.get_headers(environ))

    def _content_type(self, environ: Any) -> str:
        if page.wants_html(environ):
            return "text/html; charset=utf-8"
        return "application/json" if self.answers.format == "envelope" else "application/problem+json"

    def _page(self) -> str:
        ours = self.message != self.answers.message
        return page.render(
            title=self.title, message=self.message, ours=ours, cure=self.cure, reason=self.reason, status=self.code
        )

    def _problem(self) -> dict[str, Any]:
        return {
            "type": _TYPE + self.reason,
            "title": self.title,
            "status": self.code,
            "detail": self.description,
            "code": self.reason,
        }

    def _envelope(self) -> dict[str, Any]:
        return {"code": _ENVELOPE_CODE, "message": self.description, "data": None, "reason": self.reason}


def as_http(error: IdempotencyError, answers: Answers) -> HTTPException:
    """Return the refusal as something that Flask answers; what the error carries is carried over."""
    if isinstance(error, HTTPException):
        return error
    kind = _mixed(type(error), answers.duplicate_status if isinstance(error, Duplicate) else error.status)
    refusal = kind.__new__(kind, *error.args)
    vars(refusal).update(vars(error))
    refusal.answers = answers
    if answers.message and isinstance(error, _WORDED):
        refusal.message = refusal.description = answers.message
    else:
        refusal.description = f"{error.message} {error.cure}"
    refusal.data = {
        "message": refusal.description,
        "errors": {"reason": error.reason},
        "headers": dict(refusal.more_headers),
    }
    refusal.__cause__ = error.__cause__
    return refusal.with_traceback(error.__traceback__)


_MIXED: Final[dict[tuple[type[IdempotencyError], int], type[Refusal]]] = {}


def _mixed(kind: type[IdempotencyError], status: int) -> type[Refusal]:
    """Mix a core class with werkzeug's class of a status: Flask looks for handlers along the MRO."""
    known = _MIXED.get((kind, status))
    if known is not None:
        return known
    base = default_exceptions.get(status, HTTPException)
    members = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    mixed = type(kind.__name__, (Refusal, kind, base), {"code": status, **members})
    return _MIXED.setdefault((kind, status), cast("type[Refusal]", mixed))  # two threads: one class


def promote_handlers(app: Flask) -> None:
    """Let handlers for the core's classes compete with those for statuses.

    Flask asks for handlers by status before those by class alone, and the core's classes have no status in its eyes:
    copied to the statuses of their reasons, the most specific one wins. Handlers of one scope only; that of a blueprint
    goes before the app's, as always.
    """
    duplicate_status = app.config.get("IDEMPOTENCY_DUPLICATE_STATUS", Duplicate.status)
    for scope in app.error_handler_spec.values():
        for kind, handler in list(scope.get(None, {}).items()):
            if issubclass(kind, IdempotencyError):
                for status in _statuses(kind, duplicate_status):
                    scope[status].setdefault(kind, handler)


def _statuses(kind: type[IdempotencyError], duplicate_status: int) -> set[int]:
    """Return the statuses with which a class or one below it is answered."""
    below = (_statuses(each, duplicate_status) for each in kind.__subclasses__())
    own = {kind.status, duplicate_status} if issubclass(kind, Duplicate) else {kind.status}
    return own.union(*below)
