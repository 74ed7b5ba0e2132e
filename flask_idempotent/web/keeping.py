"""What is kept of an answer for duplicates."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from flask import Response

from . import snapshot

if TYPE_CHECKING:
    from .attempt import Attempt

_logger = logging.getLogger(__name__)


def kept(attempt: Attempt, response: Response) -> bytes | None:
    """Return what is kept; None if nothing can or should be."""
    try:
        viewer = attempt.asker.viewer()
        found = snapshot.capture(
            _own(attempt, response),
            attempt.rules.max_result,
            viewer=viewer,
            open=bool(viewer) or "HTTP_COOKIE" not in attempt.request.environ,
            flashes=tuple(attempt.flashes),
        )
    except Exception:
        # Never trade the first answer for the record.
        _logger.exception("The answer of scene %s could not be captured; it is done without one.", attempt.rules.scene)
        return None
    return snapshot.pack(found) if found is not None else None


def _own(attempt: Attempt, response: Any) -> Any:
    """Flask makes a streamed copy of an answer that was raised, of which nothing could be kept: return the one in the
    exception instead, or read the copy of what werkzeug wrote."""
    if attempt.answered_by is None or response.is_sequence:
        return response
    if attempt.answered_by.response is not None:
        return attempt.answered_by.response
    response.make_sequence()
    return response
