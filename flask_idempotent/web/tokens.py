"""Where a request carries its token."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Request

from ..core.errors import TokenInvalid, TokenMissing
from ..core.keys import parse_token
from .content import Content


def find(locations: Sequence[str], request: Request, header: str, field: str, content: Content) -> str:
    """Return the token in its one spelling: the first place in the order given counts.

    :param header: the header's key in the WSGI environment.
    :raises TokenMissing: no place holds one; an empty value counts as none.
    :raises TokenInvalid: the first place that holds one holds something malformed, or two of them.
    """
    for location in locations:
        values = [value for value in _values(location, request, header, field, content) if value]
        if not values:
            continue
        token = parse_token(values[0]) if len(values) == 1 else None
        if token is None:
            raise TokenInvalid()
        return token
    raise TokenMissing(_hint(content) if "form" in locations else None)


def _values(location: str, request: Request, header: str, field: str, content: Content) -> list[str]:
    if location == "header":
        # A server joins lines of one name with commas; so one that comes twice is malformed.
        return [request.environ.get(header, "")]
    if location == "form":
        return content.values(field)
    if location == "query":
        return content.query_values(field)
    value = content.json_value(field)
    return [] if value is None else [value]


def _hint(content: Content) -> str | None:
    if not content.unparsable:
        return None
    return f"{TokenMissing.text} The body could not be parsed as the form that its Content-Type announces."
