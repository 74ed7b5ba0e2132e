"""Clients that this package makes: time-outs short enough for a request, and one retry on a broken connection."""

from __future__ import annotations

from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as BrokenConnection
from redis.retry import Retry

_TIMEOUT: Final = 0.4
"""Seconds to connect, to read, and to wait for a connection of the pool."""


def client_from_url(url: str) -> redis.Redis:
    """Return a client that connects at its first use, anew in every process.

    :param url: as redis-py reads it, its query options included; ``valkey://`` and ``valkeys://`` stand for ``redis://``
        and ``rediss://``.
    :raises ValueError: redis-py cannot read it.
    """
    options: dict[str, Any] = {
        "socket_connect_timeout": _TIMEOUT,
        "socket_timeout": _TIMEOUT,
        "timeout": _TIMEOUT,
        # A time-out is not tried again: the second would double the wait, and the server may be at work on the first.
        "retry": Retry(NoBackoff(), 1, supported_errors=(BrokenConnection,)),
    }
    pool = redis.BlockingConnectionPool.from_url(_as_redis(url), **options)
    try:
        pool.connection_class(
            **pool.connection_kwargs
        )  # connects nothing; an unknown option must not wait for a request
    except TypeError as error:
        raise ValueError(f"the store's URL has an option that redis-py does not know: {error}") from error
    client = redis.Redis(connection_pool=pool)
    client.auto_close_connection_pool = True  # as in redis.Redis.from_url: a client that is dropped closes its pool
    return client


def _as_redis(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return scheme.lower().replace("valkey", "redis") + separator + rest
