"""The one table of ``IDEMPOTENCY_*`` keys: defaults and validation, read once by ``init_app``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, Literal

from .web.policies import NAMED as NAMED_POLICIES

PREFIX: Final = "IDEMPOTENCY_"
DEFAULTS: Final[Mapping[str, Any]] = {
    "ENABLED": True,
    "STORE": None,
    "STORES": {},
    "PREFIX": "idempotency",
    "TOKEN_TTL": 3600,
    "RESULT_TTL": 86400,
    "LEASE": 300,
    "WAIT": 0,
    "TOKEN_HEADER": "Idempotency-Token",
    "TOKEN_FIELD": "idempotency_token",
    "TOKEN_URL": "/idempotency/token",
    "TOKEN_LOCATIONS": ("header", "form"),
    "KEY_HEADER": "Idempotency-Key",
    "METHODS": ("POST", "PUT", "PATCH", "DELETE"),
    "BINDING": "ip",
    "IPV4_PREFIX": 32,
    "IPV6_PREFIX": 64,
    "PRINCIPAL": None,
    "ON_DUPLICATE": "replay",
    "RESTORE_ON_ERROR": True,
    "MESSAGE": None,
    "ERROR_FORMAT": "problem",
    "DUPLICATE_STATUS": 409,
    "POLICY_URL": None,
    "STORE_DOWN": "refuse",
    "MAX_RESULT": 1024 * 1024,
    "MAX_BODY": 1024 * 1024,
}
"""Every key without its prefix, and its default. Times are seconds (or a timedelta), sizes are bytes."""

_LOCATIONS: Final = ("header", "form", "query", "json")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_LINK: Final = re.compile(r"(?:https?://[!#-;=?-~]|/)[!#-;=?-~]*")  # what may stand between < and >
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


@dataclass(frozen=True, slots=True)
class Settings:
    """What an app has set; times in seconds, sizes in bytes. ``IDEMPOTENCY_ENABLED`` is read at every request."""

    prefix: str
    token_ttl: float
    result_ttl: float
    lease: float
    wait: float
    token_header: str
    token_field: str
    token_url: str | None
    token_locations: tuple[str, ...]
    key_header: str
    methods: frozenset[str]
    binding: str | Callable[[], Any]
    ipv4_prefix: int
    ipv6_prefix: int
    principal: Callable[[], Any] | None
    on_duplicate: str | Callable[..., Any]
    restore_on_error: bool
    message: str | None
    error_format: Literal["problem", "envelope"]
    duplicate_status: int
    policy_url: str | None
    store_down: str
    max_result: int
    max_body: int

    @classmethod
    def read(cls, config: dict[str, Any]) -> Settings:
        """Set the defaults in an app's config and read it.

        :raises ValueError: a value makes no sense, or there is no such key; the message names the key and the cure.
        """
        _known(config)
        for name, default in DEFAULTS.items():
            config.setdefault(PREFIX + name, copy(default))
        flag(PREFIX + "ENABLED", config[PREFIX + "ENABLED"])
        _stores(PREFIX + "STORES", config[PREFIX + "STORES"])
        raw = {field.name: config[PREFIX + field.name.upper()] for field in fields(cls)}
        return cls(**{name: _CHECKS[name](PREFIX + name.upper(), value) for name, value in raw.items()})


def seconds(name: str, value: Any) -> float:
    """Return a time as seconds.

    :raises ValueError: it is not a positive number or timedelta.
    """
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < float("inf"):
        raise ValueError(f"{name} must be a positive number of seconds or a timedelta, not {value!r}.")
    return float(number)


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


def _known(config: Mapping[str, Any]) -> None:
    unknown = {key for key in config if key.startswith(PREFIX)} - {PREFIX + name for name in DEFAULTS}
    if unknown:
        known = ", ".join(PREFIX + name for name in DEFAULTS)
        raise ValueError(f"Unknown configuration {', '.join(sorted(unknown))}. The keys are: {known}.")


def zero_or_seconds(name: str, value: Any) -> float:
    """Return a time as seconds; it may be 0.

    :raises ValueError: it is neither that nor a positive number or timedelta.
    """
    return 0.0 if value == 0 or value == timedelta(0) else seconds(name, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise ValueError(f"{name} must be printable ASCII text, not {value!r}.")
    return value


def _header(name: str, value: Any) -> str:
    if not isinstance(value, str) or not _HEADER.fullmatch(value):
        raise ValueError(f"{name} must be the name of a header, as 'Idempotency-Token', not {value!r}.")
    return value


def _stores(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict of names and stores, not {value!r}.")


def _url(name: str, value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value.startswith("/")):
        raise ValueError(f"{name} must be a path that begins with a slash, or None for no route, not {value!r}.")
    return value


def _link(name: str, value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and _LINK.fullmatch(value)):
        raise ValueError(f"{name} must be a URL, or a path that begins with a slash, or None, not {value!r}.")
    return value


def _words(value: Any) -> tuple[Any, ...]:
    """Return one word or several as a tuple; an empty one for anything else."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, Iterable) else ()


def _locations(name: str, value: Any) -> tuple[str, ...]:
    words = _words(value)
    if not words or set(words) - set(_LOCATIONS):
        raise ValueError(f"{name} must list some of {', '.join(map(repr, _LOCATIONS))}, not {value!r}.")
    return words


def _methods(name: str, value: Any) -> frozenset[str]:
    words = frozenset(str(word).upper() for word in _words(value))
    if not words or words & _SAFE:
        raise ValueError(f"{name} must list unsafe methods such as 'POST', not {value!r}: safe ones are never guarded.")
    return words


def _integer(low: int, high: int) -> Callable[[str, Any], int]:
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


_BYTES = _integer(0, 2**40)
_CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "prefix": _text,
    "token_ttl": seconds,
    "result_ttl": seconds,
    "lease": seconds,
    "wait": zero_or_seconds,
    "token_header": _header,
    "token_field": _text,
    "token_url": _url,
    "token_locations": _locations,
    "key_header": _header,
    "methods": _methods,
    "binding": binding,
    "ipv4_prefix": _integer(0, 32),
    "ipv6_prefix": _integer(0, 128),
    "principal": callable_or_none,
    "on_duplicate": policy,
    "restore_on_error": flag,
    "message": text_or_none,
    "error_format": one_of("problem", "envelope"),
    "duplicate_status": _integer(200, 599),
    "policy_url": _link,
    "store_down": one_of("refuse", "pass"),
    "max_result": _BYTES,
    "max_body": _BYTES,
}
