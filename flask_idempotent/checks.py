"""Checks of what an app sets, in its config or on a view. Each takes the setting's name and its value, returns what is
used, and raises ``ValueError`` with the name and the cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final

from .web.policies import NAMED as NAMED_POLICIES

_LOCATIONS: Final = ("header", "form", "query", "json")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_LINK: Final = re.compile(r"(?:https?://[!#-;=?-~]|/)[!#-;=?-~]*")  # what may stand between < and >
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def seconds(name: str, value: Any) -> float:
    """Return a time as seconds.

    :raises ValueError: it is not a positive number or timedelta.
    """
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < float("inf"):
        raise ValueError(f"{name} must be a positive number of seconds or a timedelta, not {value!r}.")
    return float(number)


def zero_or_seconds(name: str, value: Any) -> float:
    """Return a time as seconds; it may be 0.

    :raises ValueError: it is neither that nor a positive number or timedelta.
    """
    return 0.0 if value == 0 or value == timedelta(0) else seconds(name, value)


def one_of(*allowed: str) -> Callable[[str, Any], Any]:
    """Return a check that a value is one of the words allowed."""

    def check(name: str, value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}.")
        return value

    return check


def policy(name: str, value: Any) -> Any:
    """Check an ``on_duplicate``: a policy's name or a callable."""
    return value if callable(value) else one_of(*NAMED_POLICIES)(name, value)


def binding(name: str, value: Any) -> Any:
    """Check a binding: a name, None or a callable."""
    if value is None:
        return "none"
    return value if callable(value) else one_of("ip", "session", "user", "none")(name, value)


def text(name: str, value: Any) -> str:
    """Return printable ASCII text.

    :raises ValueError: it is not, or it is empty.
    """
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise ValueError(f"{name} must be printable ASCII text, not {value!r}.")
    return value


def header(name: str, value: Any) -> str:
    """Return the name of a header (RFC 9110 §5.1).

    :raises ValueError: it is none.
    """
    if not isinstance(value, str) or not _HEADER.fullmatch(value):
        raise ValueError(f"{name} must be the name of a header, as 'Idempotency-Token', not {value!r}.")
    return value


def path_or_none(name: str, value: Any) -> str | None:
    """Return a path of the app, or None.

    :raises ValueError: it is neither.
    """
    if value is not None and not (isinstance(value, str) and value.startswith("/")):
        raise ValueError(f"{name} must be a path that begins with a slash, or None for no route, not {value!r}.")
    return value


def link_or_none(name: str, value: Any) -> str | None:
    """Return a URL or path that may stand in a Link header (RFC 8288), or None.

    :raises ValueError: it is neither.
    """
    if value is not None and not (isinstance(value, str) and _LINK.fullmatch(value)):
        raise ValueError(f"{name} must be a URL, or a path that begins with a slash, or None, not {value!r}.")
    return value


def locations(name: str, value: Any) -> tuple[str, ...]:
    """Return where a token may be found.

    :raises ValueError: a place is unknown, or there is none.
    """
    words = _words(value)
    if not words or set(words) - set(_LOCATIONS):
        raise ValueError(f"{name} must list some of {', '.join(map(repr, _LOCATIONS))}, not {value!r}.")
    return words


def methods(name: str, value: Any) -> frozenset[str]:
    """Return unsafe methods (RFC 9110 §9.2.1) in capitals.

    :raises ValueError: one is safe, or there is none.
    """
    words = frozenset(str(word).upper() for word in _words(value))
    if not words or words & _SAFE:
        raise ValueError(f"{name} must list unsafe methods such as 'POST', not {value!r}: safe ones are never guarded.")
    return words


def integer(low: int, high: int) -> Callable[[str, Any], int]:
    """Return a check that a value is a whole number between both."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}.")
        return value

    return check


def flag(name: str, value: Any) -> bool:
    """Check that a value is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {value!r}.")
    return value


def text_or_none(name: str, value: Any) -> str | None:
    """Check that a value is text or None."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be text or None, not {value!r}.")
    return value


def callable_or_none(name: str, value: Any) -> Any:
    """Check that a value is callable or None."""
    if value is not None and not callable(value):
        raise ValueError(f"{name} must be a callable or None, not {value!r}.")
    return value


def _words(value: Any) -> tuple[Any, ...]:
    """Return one word or several as a tuple; an empty one for anything else."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, Iterable) else ()
