"""The store in Redis or Valkey."""

from __future__ import annotations

import inspect

try:
    from .connect import client_from_url
    from .store import RedisStore
except ModuleNotFoundError as error:
    if error.name != "redis":
        raise
    raise ImportError('the Redis store needs redis-py: pip install "flask-idempotency[redis]"') from error

__all__ = ["RedisStore", "store_from_client", "store_from_url"]


def store_from_url(url: str, *, prefix: str) -> RedisStore:
    """Return a store with a client of its own (see :func:`.connect.client_from_url`)."""
    return RedisStore(client_from_url(url), prefix)


def store_from_client(client: object, *, prefix: str) -> RedisStore:
    """Return a store that works through the app's client.

    :raises TypeError: the client is an asynchronous one, or one of valkey-py, whose errors are others.
    """
    if any(base.__module__.partition(".")[0] == "valkey" for base in type(client).__mro__):
        raise TypeError(
            f"{type(client).__name__} is a client of valkey-py; redis.Redis of redis-py talks to Valkey, too"
        )
    if inspect.iscoroutinefunction(getattr(client, "execute_command", None)):
        raise TypeError(f"{type(client).__name__} is asynchronous; pass a redis.Redis or redis.RedisCluster")
    return RedisStore(client, prefix)
