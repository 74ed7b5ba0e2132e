"""The one table of ``IDEMPOTENCY_*`` keys: defaults and validation, read once by ``init_app``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from . import checks

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
        checks.flag(PREFIX + "ENABLED", config[PREFIX + "ENABLED"])
        _stores(PREFIX + "STORES", config[PREFIX + "STORES"])
        raw = {field.name: config[PREFIX + field.name.upper()] for field in fields(cls)}
        return cls(**{name: _CHECKS[name](PREFIX + name.upper(), value) for name, value in raw.items()})


def _known(config: Mapping[str, Any]) -> None:
    unknown = {key for key in config if key.startswith(PREFIX)} - {PREFIX + name for name in DEFAULTS}
    if unknown:
        known = ", ".join(PREFIX + name for name in DEFAULTS)
        raise ValueError(f"Unknown configuration {', '.join(sorted(unknown))}. The keys are: {known}.")


def _stores(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict of names and stores, not {value!r}.")


_BYTES = checks.integer(0, 2**40)
_CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "prefix": checks.text,
    "token_ttl": checks.seconds,
    "result_ttl": checks.seconds,
    "lease": checks.seconds,
    "wait": checks.zero_or_seconds,
    "token_header": checks.header,
    "token_field": checks.text,
    "token_url": checks.path_or_none,
    "token_locations": checks.locations,
    "key_header": checks.header,
    "methods": checks.methods,
    "binding": checks.binding,
    "ipv4_prefix": checks.integer(0, 32),
    "ipv6_prefix": checks.integer(0, 128),
    "principal": checks.callable_or_none,
    "on_duplicate": checks.policy,
    "restore_on_error": checks.flag,
    "message": checks.text_or_none,
    "error_format": checks.one_of("problem", "envelope"),
    "duplicate_status": checks.integer(200, 599),
    "policy_url": checks.link_or_none,
    "store_down": checks.one_of("refuse", "pass"),
    "max_result": _BYTES,
    "max_body": _BYTES,
}
