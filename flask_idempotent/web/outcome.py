"""How a view ended, in its own words."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the view itself returned or raised; handed to ``final=``."""

    status_code: int
    headers: Headers


def outcome_of(value: Any) -> Outcome:
    """Return status and headers of what a view returned, without making the response: a decorator above may still turn
    the value into one."""
    if isinstance(value, Response):
        return Outcome(value.status_code, value.headers)
    status, headers = 200, Headers()
    if isinstance(value, tuple):
        inner = outcome_of(value[0]) if value else Outcome(200, headers)
        status, headers = inner.status_code, Headers(inner.headers)
        for part in value[1:]:
            number = _status(part)
            if number is not None:
                status = number
            elif part is not None:
                with suppress(TypeError, ValueError):  # no headers: what it is, the decorator above knows
                    headers.update(part)
    return Outcome(status, headers)


def outcome_of_error(error: HTTPException) -> Outcome:
    """Return status and headers of an HTTPException, which is an answer like another."""
    if error.response is not None:
        headers = getattr(error.response, "headers", Headers())
        return Outcome(getattr(error.response, "status_code", 200), headers)
    return Outcome(error.code or 500, Headers(error.get_headers()))


def _status(part: Any) -> int | None:
    if isinstance(part, int):
        return int(part)
    if isinstance(part, str) and part[:3].isdigit():
        return int(part[:3])
    return None
