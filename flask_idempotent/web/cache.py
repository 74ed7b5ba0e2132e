"""A page that carries a token is for one reader."""

from __future__ import annotations

from typing import Final

from flask import Response, after_this_request, request

_ATTRIBUTE: Final = "_idempotency_token_rendered"


def note_token() -> None:
    """A token is being rendered into the answer of the present request."""
    if not carries_token():
        setattr(request, _ATTRIBUTE, True)
        after_this_request(keep_private)


def carries_token() -> bool:
    """Return whether a token was rendered into the answer of the present request."""
    return getattr(request, _ATTRIBUTE, False)


def keep_private(response: Response) -> Response:
    """Forbid shared caches. What the app set stays, but ``public`` and ``s-maxage`` go.

    Not no-store: then Back fetches a fresh form with a fresh token, loses what was typed and invites a second
    submission, while a page from the browser's history brings the used token back and is answered rightly.
    """
    control = response.cache_control
    del control.public
    del control.s_maxage
    control.private = True
    if not control.no_store:
        control.no_cache = True
    return response
