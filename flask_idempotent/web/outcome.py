"""How a view ended, in its own words."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response


class Outcome:
    """What the view itself returned or raised; handed to ``final=``.

    :param status_code: HTTP status.
    :param headers: returns the headers; hardly anybody asks for them.
    """

    __slots__ = ("_headers", "status_code")

    def __init__(self, status_code: int, headers: Callable[[], Headers]) -> None:
        self.status_code = status_code
        self._headers = headers

    @property
    def headers(self) -> Headers:
        """The headers."""
        return self._headers()


def outcome_of(value: Any) -> Outcome:
    """Return status and headers of what a view returned, without making the response: a decorator above may still turn
    the value into one."""
    return Outcome(_status_of(value), lambda: _headers_of(value))


def _status_of(value: Any) -> int:
    if isinstance(value, Response):
        return value.status_code
    if not isinstance(value, tuple) or not value:
        return 200
    numbers = [number for part in value[1:] if (number := _status(part)) is not None]
    return numbers[-1] if numbers else _status_of(value[0])


def _headers_of(value: Any) -> Headers:
    if isinstance(value, Response):
        return value.headers
    headers = Headers()
    if isinstance(value, tuple) and value:
        headers = Headers(_headers_of(value[0]))
        for part in value[1:]:
            if part is not None and _status(part) is None:
                with suppress(TypeError, ValueError):  # no headers: what it is, the decorator above knows
                    headers.update(part)
    return headers


def outcome_of_error(error: HTTPException) -> Outcome:
    """Return status and headers of an HTTPException, which is an answer like another."""
    if error.response is not None:
        response = error.response
        return Outcome(getattr(response, "status_code", 200), lambda: getattr(response, "headers", Headers()))
    return Outcome(error.code or 500, lambda: Headers(error.get_headers()))


def _status(part: Any) -> int | None:
    if isinstance(part, int):
        return int(part)
    if isinstance(part, str) and part[:3].isdigit():
        return int(part[:3])
    return None
