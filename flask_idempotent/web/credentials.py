"""What a request says of who is asking, in Authorization or another usual place. Nobody has verified it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Final

from flask import Request
from werkzeug.http import parse_dict_header

Parts = tuple[str | bytes, ...]

_READABLE: Final = 8192
"""Characters of credentials that are looked into; longer ones count as a whole."""
_ELSEWHERE: Final = (
    "REMOTE_USER",  # by the server or a middleware
    "HTTP_X_API_KEY",
    "HTTP_API_KEY",
    "HTTP_APIKEY",
    "HTTP_X_AUTH_TOKEN",
    "HTTP_X_ACCESS_TOKEN",
)
"""Keys of the WSGI environment."""


def of(request: Request) -> str:
    """Return the Authorization header as it came; empty if there is none."""
    return str(request.environ.get("HTTP_AUTHORIZATION") or "")


def beside(request: Request) -> list[str]:
    """Return names and values of what else usually tells who is asking, for logins that an app has made itself."""
    environ = request.environ
    return [text for name in _ELSEWHERE if environ.get(name) for text in (name, str(environ[name]))]


def stable_part(credentials: str) -> Parts | None:
    """Return a kind and what stays when the credentials are renewed, None if nothing in them is known to.

    It is whatever the client wrote. Raises nothing, whatever that is.
    """
    if len(credentials) > _READABLE:
        return None
    scheme, _, rest = credentials.partition(" ")
    read = _SCHEMES.get(scheme.lower())
    return None if read is None else read(rest.strip())


def _basic_user(encoded: str) -> Parts | None:
    try:
        user, colon, _ = base64.b64decode(encoded, validate=True).partition(b":")
    except ValueError:
        return None
    # An empty user is everybody whose secret is the password.
    return ("basic", user) if colon and user else None


def _digest_user(parameters: str) -> Parts | None:
    user = parse_dict_header(parameters).get("username")
    return ("digest", user) if user else None


def _jwt_subject(token: str) -> Parts | None:
    parts = token.split(".")
    if len(parts) != 3:
        return None
    payload = parts[1].replace("-", "+").replace("_", "/")
    try:
        claims = json.loads(base64.b64decode(payload + "=" * (-len(payload) % 4), validate=True).decode("utf-8"))
    except (ValueError, RecursionError):  # nested deeper than the parser goes
        return None
    if not isinstance(claims, dict):
        return None
    subject, issuer = claims.get("sub"), claims.get("iss")
    if isinstance(subject, bool) or not isinstance(subject, str | int) or subject == "":
        return None
    if not isinstance(issuer, str | None):
        return None
    return ("jwt", str(subject)) if issuer is None else ("jwt", str(subject), issuer)


_SCHEMES: Final[dict[str, Callable[[str], Parts | None]]] = {
    "basic": _basic_user,
    "digest": _digest_user,
    "bearer": _jwt_subject,
}
