"""What is said of an answer after every hook of the app's."""

from __future__ import annotations

from flask import Response

from .cache import carries_token, keep_private
from .crossorigin import expose, shows_replay
from .present import present, the_app


def last_word(response: Response) -> Response:
    """Stands first among the app's after-request hooks, and so runs last: a rule of the app's for all its pages, set in
    a hook, must not share a token either; and what other origins may read of a replay, CORS hooks have said by then."""
    request = present()
    if shows_replay(request):
        expose(response)
    return keep_private(response) if carries_token(request) else response


def have_last_word() -> None:
    """Let :func:`last_word` run in the present request, and from now on: an app that neither renders a token nor
    replays pays nothing for it."""
    hooks = the_app().after_request_funcs
    if last_word not in hooks[None]:
        hooks[None] = [last_word, *hooks[None]]  # a new list: other requests are on their way through the old one
