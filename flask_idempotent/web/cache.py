"""A page that carries a token is for one reader."""

from __future__ import annotations

from typing import Any, Final

from flask import Response

from .present import present

_ATTRIBUTE: Final = "_idempotency_token_rendered"


def note_token() -> None:
    """A token is being put into the answer of the present request."""
    setattr(present(), _ATTRIBUTE, True)


def carries_token(request: Any) -> bool:
    """Return whether a token was put into the answer of a request."""
    return getattr(request, _ATTRIBUTE, False)


def keep_private(response: Response) -> Response:
    """Forbid shared caches. What the app set stays, but ``public`` and ``s-maxage`` go.

    Not no-store: then Back fetches a fresh form with a fresh token, loses what was typed and invites a second
    submission, while a page from the browser's history brings the used token back and is answered rightly.
    """
    control = response.cache_control
    del control.public
    del control.s_maxage
    if not control.no_store:
        control.private = True
        control.no_cache = True
    return response
