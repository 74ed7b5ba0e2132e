"""Who is asking: the verified principal, whom a stored answer may be shown to, whose name space a key lies in."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from types import CoroutineType, FunctionType, MethodType
from typing import Any, Final

from flask import Flask, Request, g, request

from ..core.keys import digest
from . import credentials
from .present import the_app

_WARNED: Final = "idempotency: warned of a guess"
_AN_ADDRESS: Final = tuple(kind.__repr__ for kind in (object, FunctionType, MethodType, CoroutineType))

_logger = logging.getLogger(__name__)


def verified_principal(principal: Callable[[], Any] | None) -> str | None:
    """Return a digest of who is asking, None for nobody.

    The app's callable alone counts where there is one. Else what an extension has verified in this request: first
    those that a view asks for (Flask-JWT-Extended, Flask-HTTPAuth), then the session of Flask-Login. An extension that
    the app does not use is neither imported nor asked.

    :raises TypeError: the callable returned an object without a text of its own.
    """
    if principal is not None:
        return _as_the_app_says(principal())
    app = the_app()
    found = _jwt_extended_user() if "flask-jwt-extended" in app.extensions else None
    if found is None and "flask_httpauth" in sys.modules:
        found = _httpauth_user()
    if found is None and getattr(app, "login_manager", None) is not None:
        found = _flask_login_user(app.login_manager)
    return found


def viewer(request: Request, verified: str | None) -> str:
    """Return whom an answer that is recorded now may be shown to: the verified principal, else a digest of the exact
    credentials; empty if there are neither."""
    if verified is not None:
        return verified
    given, more = credentials.of(request), credentials.beside(request)
    return digest("credentials", given, *more) if given or more else ""


def namespace(request: Request, verified: str | None) -> str:
    """Return whose name space a client-made key lies in; empty if nothing tells.

    Without a verified principal it is the part of the credentials that stays when they are renewed: the user of Basic
    and Digest, issuer and subject of a bearer JWT (RFC 7519 §4.1), else all of them. Nobody has verified them here, so
    that this says only where to look, never what may be shown. Raises nothing, whatever the header holds.
    """
    if verified is not None:
        return verified
    given, more = credentials.of(request), credentials.beside(request)
    if not given and not more:
        return ""
    return digest("name space", *(credentials.stable_part(given) or ("whole", given)), *more)


def warn_of_guess(app: Flask) -> None:
    """Log once for an app that an answer could not be shown, since nobody knows who is asking, and name the cure."""
    mine = object()
    if app.extensions.setdefault(_WARNED, mine) is not mine:  # one step: of several threads, one warns
        return
    _logger.warning(
        "App %r: the answer to a repeated request was not shown, since nobody knows who is asking: the request carries "
        "cookies and no principal. Say who it is by principal= on the view or by IDEMPOTENCY_PRINCIPAL, for example "
        'lambda: session.get("user_id"). This is logged once.',
        app.name,
    )


def _as_the_app_says(value: Any) -> str | None:
    if value is None:
        return None
    if _is_without_text(value):
        # Another text in each request would be another name space: every repetition would run.
        raise TypeError(f"principal= returned a {value.__class__.__name__}, whose text is its address; return its id.")
    return digest("principal", str(value))


def _jwt_extended_user() -> str | None:
    from flask_jwt_extended import get_jwt, get_jwt_identity

    try:
        claims = get_jwt()
    except RuntimeError:  # no view has asked for a token
        return None
    identity = _text(get_jwt_identity())
    if identity is None:
        return None
    issuer = _text(claims.get("iss"))
    return digest("flask-jwt-extended", identity, *([issuer] if issuer is not None else []))


def _httpauth_user() -> str | None:
    # The extension leaves no trace in the app; it sets this for whom it let in, false if for nobody (optional=True).
    user = g.get("flask_httpauth_user")
    if user is None:
        return None
    if isinstance(user, str | int) and user is not True:
        return digest("flask-httpauth", str(user)) if user else None
    name = _text(_attribute(user, "id"))
    if name is not None:
        return digest("flask-httpauth", "object", type(user).__module__, type(user).__qualname__, name)
    return _httpauth_credentials()


def _httpauth_credentials() -> str | None:
    # All of them, not the user in them: what was verified may have been another header (HTTPTokenAuth(header=…)), and
    # then anyone may write any name here. A JWT has a better name space than its digest, which a renewal changes.
    given = credentials.of(request)
    if not given or (credentials.stable_part(given) or ("",))[0] == "jwt":
        return None
    return digest("flask-httpauth", "credentials", given)


def _flask_login_user(manager: Any) -> str | None:
    # Only when the app uses Flask-Login: asking it reads the session.
    if not _has_loader(manager):
        return None
    from flask_login import current_user  # type: ignore[import-untyped]  # the app brings it; it has no types

    # An error of the app's loader passes: who cannot be looked up is not nobody.
    user = current_user._get_current_object()  # noqa: SLF001  # werkzeug documents it for this
    if not _attribute(user, "is_authenticated"):
        return None
    name = _text(_result(_attribute(user, "get_id")))
    return None if name is None else digest("flask-login", name)


def _has_loader(manager: Any) -> bool:
    # Without one, asking for the current user is an error.
    loaders = [getattr(manager, name, None) for name in ("_user_callback", "_request_callback")]
    return any(loader is not None for loader in loaders)


def _attribute(user: Any, name: str) -> Any:
    try:
        return getattr(user, name, None)
    except Exception:  # a property of the app's that fails names nobody
        return None


def _result(get_id: Any) -> Any:
    try:
        return get_id()
    except Exception:  # as UserMixin's, for a user without an id
        return None


def _text(value: Any) -> str | None:
    """Return the text of what names a user, None for what names nobody or somebody else in each request."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return None if _is_without_text(value) else str(value) or None
    except Exception:  # the app's own object
        return None


def _is_without_text(value: Any) -> bool:
    kind = value.__class__  # that of what a proxy stands for
    return kind.__str__ is object.__str__ and kind.__repr__ in _AN_ADDRESS
