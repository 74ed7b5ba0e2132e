"""A page that carries a token is for one reader."""

from __future__ import annotations

from typing import Any, Final

from flask import Response

from .crossorigin import expose, shows_replay
from .present import present

_ATTRIBUTE: Final = "_idempotency_token_rendered"


def note_token() -> None:
    """A token is being put into the answer of the present request."""
    setattr(present(), _ATTRIBUTE, True)


def carries_token(request: Any) -> bool:
    """Return whether a token was put into the answer of a request."""
    return getattr(request, _ATTRIBUTE, False)


def last_word(response: Response) -> Response:
    """Stands first among the app's after-request hooks, and so runs last: a rule of the app's for all its pages, set in
    a hook, must not share a token either; and what other origins may read of a replay, CORS hooks have said by then."""
    request = present()
    if shows_replay(request):
        expose(response)
    return keep_private(response) if carries_token(request) else response


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
