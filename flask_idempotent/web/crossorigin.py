"""What a script of another origin can read of a replay."""

from __future__ import annotations

from typing import Any, Final

from flask import Response
from werkzeug.datastructures import Headers

from .present import present
from .snapshot import REPLAYED

_ATTRIBUTE: Final = "_idempotency_replay_shown"
_PREFIX: Final = "access-control-"
_ORIGIN: Final = "Access-Control-Allow-Origin"
_EXPOSED: Final = "Access-Control-Expose-Headers"


def note_replay(response: Response) -> Response:
    """A stored answer is about to be shown in the present request.

    A decorator between view and guard had its word on the first answer, and it was recorded. Where that names another
    origin it goes: to the one who asks now it is as good as none, and Flask-CORS keeps silent where it finds one.
    """
    request = present()
    setattr(request, _ATTRIBUTE, True)
    headers = response.headers
    if _names(headers, _ORIGIN) and headers[_ORIGIN] not in ("*", request.environ.get("HTTP_ORIGIN")):
        for name in {name for name, _ in headers if name.lower().startswith(_PREFIX)}:
            del headers[name]
        headers.setlist("Vary", [value for value in headers.getlist("Vary") if value.lower() != "origin"])
    return response


def shows_replay(request: Any) -> bool:
    """Return whether a stored answer was shown in a request."""
    return getattr(request, _ATTRIBUTE, False)


def expose(response: Response) -> Response:
    """Let a script that may read a replay know it for one: it sees the headers that are listed for it (Fetch Standard,
    3.3.3).

    Only where the app lets other origins read. Its own list stays, and nothing is opened.
    """
    headers = response.headers
    if not _names(headers, _ORIGIN) or not _names(headers, REPLAYED):
        return response
    names = [name.strip() for line in headers.getlist(_EXPOSED) for name in line.split(",") if name.strip()]
    if REPLAYED.lower() not in (name.lower() for name in names):
        headers[_EXPOSED] = ", ".join([*names, REPLAYED])
    return response


def _names(headers: Headers, wanted: str) -> bool:
    # Not werkzeug's "in", which raises an error for what is missing, and catches it: four times as long.
    return wanted.lower() in [name.lower() for name, _ in headers]
