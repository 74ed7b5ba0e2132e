"""Where records are kept: a store from a URL, or from an object that the app has already."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from ..core.store import Store
from .memory import MemoryStore

REDIS_SCHEMES = ("redis", "rediss", "unix", "valkey", "valkeys")
"""URL schemes of the Redis store; ``valkey`` is ``redis`` in other words."""
_SQL = ("sqlalchemy", "sqlite", "postgresql", "postgres", "mysql", "mariadb", "oracle", "mssql")
_KNOWN = "memory://, redis://, rediss://, unix://, valkey://, valkeys://"


def from_url(url: str, *, prefix: str = "idempotency") -> Store:
    """Return a new store; nothing is connected before its first use.

    :param url: ``memory://?max_records=100000`` or a URL of redis-py, with its query options.
    :param prefix: the name space in which the store is asked for all its keys.
    :raises ValueError: the URL cannot be used; the message says why.
    :raises ImportError: the store's driver is not installed; the message says how to get it.
    """
    scheme = urlsplit(url).scheme.lower()
    if scheme == "memory":
        return _memory(url)
    if scheme in REDIS_SCHEMES:
        from .redis import store_from_url

        return store_from_url(url, prefix=prefix)
    if scheme.partition("+")[0] in _SQL:
        raise ValueError(f"{scheme}:// is not in this version: records cannot be kept in a database yet. Use {_KNOWN}")
    raise ValueError(f"no store has URLs of the kind {scheme!r}; known are {_KNOWN}")


def from_object(obj: object, *, prefix: str = "idempotency") -> Store:
    """Return a store that works through what the app hands in: a store itself, or a client of redis-py.

    :param obj: a Store, or a ``Redis``, ``RedisCluster``, Sentinel master or fakeredis client.
    :param prefix: the name space in which the store is asked for all its keys.
    :raises TypeError: it is none of these.
    """
    if isinstance(obj, Store) and not isinstance(obj, type):
        return obj
    if callable(getattr(obj, "execute_command", None)) and not isinstance(obj, type):
        from .redis import store_from_client

        return store_from_client(obj, prefix=prefix)
    raise TypeError(
        f"{type(obj).__name__} cannot be used as a store. Pass a URL ({_KNOWN}), a client of redis-py (Redis, "
        "RedisCluster, what Sentinel.master_for returns, fakeredis), or an object with the methods of "
        "flask_idempotent.core.store.Store"
    )


def _memory(url: str) -> MemoryStore:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    limit = options.pop("max_records", "100000")
    if options or parts.netloc or parts.path not in ("", "/"):
        raise ValueError(f"memory:// takes nothing but ?max_records=NUMBER, not {url!r}")
    if not limit.isdecimal() or int(limit) < 1:
        raise ValueError(f"max_records must be a whole number of at least 1, not {limit!r}")
    return MemoryStore(max_records=int(limit))
