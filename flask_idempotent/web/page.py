"""A refusal as a page, for a person in front of a browser."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from flask import current_app, has_request_context, request
from jinja2 import Environment, PackageLoader
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header
from werkzeug.wrappers import Request

_GOOD_NEWS: Final = frozenset({"duplicate", "in_progress", "response_unavailable", "exists"})
_REOPEN: Final = frozenset({"token_missing", "token_invalid", "token_unknown", "token_foreign", "token_reused"})
# A path of this server and nothing that a browser would read as another: no "//host", no "/\host", no blanks.
_LOCAL_URL: Final = re.compile(r"/(?!/)[\w.~!$&'()*+,;=:@%/?-]*", re.ASCII)


def wants_html(environ: Any) -> bool:
    """Tell whether the client lists text/html; ``*/*`` alone and htmx's fragments get JSON.

    :param environ: WSGI environment or request; None for the present request, if there is one.
    """
    if environ is None and has_request_context():
        environ = request.environ
    if isinstance(environ, Request):
        environ = environ.environ
    if environ is None or "HTTP_HX_REQUEST" in environ:
        return False
    accepted = parse_accept_header(environ.get("HTTP_ACCEPT"), MIMEAccept)
    return any(quality > 0 and value.partition(";")[0].strip().lower() == "text/html" for value, quality in accepted)


def render(*, title: str, message: str, ours: bool, cure: str, reason: str, status: int) -> str:
    """Return the page.

    :param title: heading.
    :param message: what happened.
    :param ours: whether the message is in our words; the app's may be in another language.
    :param cure: what to do next.
    :param reason: stable name of the refusal.
    :param status: HTTP status.
    """
    return (
        _templates()
        .get_template("problem.html")
        .render(
            title=title,
            message=message,
            ours=ours,
            cure=cure,
            reason=reason,
            status=status,
            good_news=reason in _GOOD_NEWS,
            # Only where a new form helps: opened after good news it invites a second order.
            form_url=_form_url() if reason in _REOPEN else None,
        )
    )


@cache
def _templates() -> Environment:
    """An environment of our own: the app's may have other delimiters."""
    loader = PackageLoader("flask_idempotent", "web/templates/idempotency")
    return Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)


def _form_url() -> str | None:
    """Return where the form was, if that is a page of this app that can be opened again."""
    if not has_request_context() or not request.referrer:
        return None
    try:
        referrer = urlsplit(request.referrer)
    except ValueError:
        return None
    url = referrer.path + (f"?{referrer.query}" if referrer.query else "")
    if f"{referrer.scheme}://{referrer.netloc}/" != request.host_url or not _LOCAL_URL.fullmatch(url):
        return None
    return url if _answers_get(referrer.path) else None


def _answers_get(path: str) -> bool:
    root = request.root_path.rstrip("/")
    adapter = current_app.create_url_adapter(request)
    if adapter is None or not path.startswith(f"{root}/"):
        return False
    return adapter.test(unquote(path.removeprefix(root)), method="GET")
