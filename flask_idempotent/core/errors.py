"""Every refusal, as a plain exception with a stable reason.

::

    IdempotencyError
    ├── TokenMissing  TokenInvalid  TokenUnknown  TokenForeign  TokenReused  SceneInvalid
    ├── KeyMissing  KeyInvalid  KeyReused
    ├── InProgress  Duplicate  ResponseUnavailable      (what an ``on_duplicate`` callable may get)
    ├── Failed  RecordInvalid
    ├── Locked  TooSoon
    ├── StaleVersion  Exists
    └── StoreUnavailable

On the web each is raised as a subclass that is also werkzeug's exception of its status, so that
``@app.errorhandler`` works with these classes, with the status and with ``HTTPException``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .record import Record, State


class IdempotencyError(Exception):
    """Root of all refusals.

    :param message: what happened, for a person; the class's own text if left out.
    """

    reason: ClassVar[str] = "idempotency_error"
    """Stable name of the refusal."""
    status: ClassVar[int] = 409
    """HTTP status with which it is answered."""
    text: ClassVar[str] = "This request was refused."
    cure: ClassVar[str] = "Open the page again and look whether it was done."
    """What to do next, for a person."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.text)
        self.message = message or self.text
        self.retry_after: int | None = None
        """Whole seconds after which a retry makes sense, or None."""


class TokenMissing(IdempotencyError):
    """The request brought no token."""

    reason, status = "token_missing", 400
    text = "The form's one-time token is missing."
    cure = "Open the form again and send it once more."


class TokenInvalid(IdempotencyError):
    """The token is malformed, or one place holds two of them."""

    reason, status = "token_invalid", 400
    text = "The form's one-time token is malformed."
    cure = "Open the form again and send it once more."


class TokenUnknown(IdempotencyError):
    """No record lies under the token: it was never issued, has expired or was used up."""

    reason, status = "token_unknown", 409
    text = "The form's one-time token is unknown, has expired or was used up."
    cure = "Open the form again and send it once more."


class TokenForeign(IdempotencyError):
    """The token was issued for another binding or another scene."""

    reason, status = "token_foreign", 403
    text = "The form's one-time token was issued to someone else, or for another form."
    cure = "Open the form again from where you are now, and send it once more."


class TokenReused(IdempotencyError):
    """The token was used before, with other content."""

    reason, status = "token_reused", 422
    text = "This form was sent before with other content. What you sent now was not saved."
    cure = "Open the form again to send something new."


class SceneInvalid(IdempotencyError):
    """The token endpoint was asked for a malformed scene."""

    reason, status = "scene_invalid", 400
    text = "A scene has at most 64 characters of A-Z, a-z, 0-9, '_', '.', ':' and '-'."
    cure = "Ask for a token with a valid scene."


class KeyMissing(IdempotencyError):
    """The operation needs an idempotency key, and none came."""

    reason, status = "key_missing", 400
    text = "This operation needs an idempotency key."
    cure = "Send the request with a key."


class KeyInvalid(IdempotencyError):
    """The idempotency key is malformed."""

    reason, status = "key_invalid", 400
    text = "The idempotency key is malformed."
    cure = "Send the request with a well-formed key."


class KeyReused(IdempotencyError):
    """The idempotency key was used before, for another request."""

    reason, status = "key_reused", 422
    text = "This idempotency key was used for another request. What was sent now was not carried out."
    cure = "Use a new key for a new request."


class _Answerable(IdempotencyError):
    """A duplicate, which a policy may answer in another way.

    :param state: running, done or failed.
    :param seconds_left: seconds of lease that the running claim has left; 0 unless it is running.
    :param record: the record that stands in the way.
    :param replayer: returns the recorded answer, or None if nothing can be shown.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        state: State = State.DONE,
        seconds_left: float = 0.0,
        record: Record | None = None,
        replayer: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.state = state
        self.seconds_left = seconds_left
        self.record = record
        self.replayer = replayer

    def replay(self) -> Any:
        """Return the first answer again.

        :raises ResponseUnavailable: nothing was kept, or it is not for this caller.
        """
        answer = self.replayer() if self.replayer is not None else None
        if answer is None:
            raise ResponseUnavailable(state=self.state, seconds_left=self.seconds_left, record=self.record)
        return answer


class InProgress(_Answerable):
    """A duplicate: the first request is still running."""

    reason, status = "in_progress", 409
    text = "This was sent before and is being worked on."
    cure = "Wait a moment, then look whether it was done. There is no need to send it again."


class Duplicate(_Answerable):
    """A duplicate: the first request is done."""

    reason, status = "duplicate", 409
    text = "This was sent before and has been done."
    cure = "There is no need to send it again."


class ResponseUnavailable(_Answerable):
    """A duplicate: the first request is done, and its answer was not kept."""

    reason, status = "response_unavailable", 409
    text = "This was sent before and has been done; its answer was not kept."
    cure = "Look at the result where it is listed. There is no need to send it again."


class Failed(IdempotencyError):
    """The first request failed, or its worker died, with restoring off."""

    reason, status = "failed", 409
    text = "This was sent before and did not end well. It may have been done in part."
    cure = "Do not send it again; ask for help."


class RecordInvalid(IdempotencyError):
    """The record is damaged, or of an unknown layout."""

    reason, status = "record_invalid", 409
    text = "What is known of this request cannot be read, so it was not carried out."
    cure = "Look whether it was done, then open the form again."


class Locked(IdempotencyError):
    """Another operation holds the lock."""

    reason, status = "locked", 409
    text = "Another operation on the same thing is being worked on."
    cure = "Wait a moment and send it again."


class TooSoon(IdempotencyError):
    """The same was done a moment ago."""

    reason, status = "too_soon", 429
    text = "This was done a moment ago."
    cure = "Wait a moment and send it again."


class StaleVersion(IdempotencyError):
    """The row was changed since its version was read."""

    reason, status = "stale_version", 409
    text = "Somebody else changed this meanwhile. Nothing was saved."
    cure = "Open it again, look at the changes, and repeat yours."


class Exists(IdempotencyError):
    """A row that has to be unique is there already."""

    reason, status = "exists", 409
    text = "It exists already."
    cure = "There is no need to send it again."


class StoreUnavailable(IdempotencyError):
    """The store cannot be reached, or refuses to work."""

    reason, status = "store_unavailable", 503
    text = "It cannot be made sure right now that this runs only once, so it was not carried out."
    cure = "Wait a moment and send it again."

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message)
        self.lost: Any = None
        """The hold of a claim whose reply never came, or None."""

    def describe(self) -> str:
        """Return the driver's own words, for logs."""
        cause = self.__cause__
        return f"{type(cause).__name__}: {cause}" if cause is not None else self.message
