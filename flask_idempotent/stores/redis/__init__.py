"""The store in Redis or Valkey."""

from __future__ import annotations

try:
    import redis as _driver
except ModuleNotFoundError as error:
    raise ImportError('the Redis store needs redis-py: pip install "flask-idempotency[redis]"') from error

from .connect import client_from_url
from .store import RedisStore

__all__ = ["RedisStore", "store_from_client", "store_from_url"]


def store_from_url(url: str, *, prefix: str) -> RedisStore:
    """Return a store with a client of its own (see :func:`.connect.client_from_url`)."""
    return RedisStore(client_from_url(url), prefix)


def store_from_client(client: object, *, prefix: str) -> RedisStore:
    """Return a store that works through the app's client.

    :raises TypeError: the client is an asynchronous one.
    """
    return RedisStore(client, prefix)
