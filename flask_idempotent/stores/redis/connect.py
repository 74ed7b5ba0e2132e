"""Clients that this package makes: time-outs short enough for a request, and one retry on a broken connection."""

from __future__ import annotations

from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as BrokenConnection
from redis.exceptions import ResponseError
from redis.retry import Retry

from .pool import Pool

_TIMEOUT: Final = 0.4
"""Seconds to connect, to read, and to wait for a connection."""
_USUAL_WAY: Final = redis.Redis.execute_command


class LeanClient(redis.Redis):
    """A client with a shorter way to send a command: what redis-py does around one takes longer than the store."""

    def ask(self, *command: bytes | int | str) -> Any:
        """Send one command and return its reply undecoded, as ``execute_command`` does with ``NEVER_DECODE``.

        :raises redis.exceptions.RedisError: what the server answered, or that it did not answer within the time-out, or
            twice that the connection broke.
        """
        if redis.Redis.execute_command is not _USUAL_WAY:
            # A tracer watches over it.
            return self.execute_command(*command, NEVER_DECODE=True)  # type: ignore[no-untyped-call]  # redis-py has no types for it
        connection: Any = self.connection_pool.get_connection()
        try:
            try:
                return _asked(connection, command)
            except BrokenConnection:
                # A time-out is not tried again: the second would double the wait, and the server may be at work on the
                # first.
                connection.disconnect()
                return _asked(connection, command)
        except ResponseError:
            raise
        except BaseException:
            connection.disconnect()  # a reply that nobody read must not answer the next command
            raise
        finally:
            self.connection_pool.release(connection)


def _asked(connection: Any, command: tuple[bytes | int | str, ...]) -> Any:
    connection.send_packed_command([_packed(command)])
    return connection.read_response(disable_decoding=True)


def _packed(command: tuple[bytes | int | str, ...]) -> bytes:
    """Return a command as the protocol writes it: an array of bulk strings, each after its length in bytes."""
    lines = [b"*%d" % len(command)]
    for part in command:
        data = part if isinstance(part, bytes) else str(part).encode()
        lines += (b"$%d" % len(data), data)
    lines.append(b"")
    return b"\r\n".join(lines)


def client_from_url(url: str) -> LeanClient:
    """Return a client that connects at its first use, anew in every process.

    :param url: as redis-py reads it, its query options included; ``valkey://`` and ``valkeys://`` stand for ``redis://``
        and ``rediss://``.
    :raises ValueError: redis-py cannot read it.
    """
    options: dict[str, Any] = {
        "socket_connect_timeout": _TIMEOUT,
        "socket_timeout": _TIMEOUT,
        "timeout": _TIMEOUT,
        "retry": Retry(NoBackoff(), 1, supported_errors=(BrokenConnection,)),
    }
    pool = Pool.from_url(_as_redis(url), **options)
    try:
        pool.connection_class(
            **pool.connection_kwargs
        )  # connects nothing; an unknown option must not wait for a request
    except TypeError as error:
        raise ValueError(f"the store's URL has an option that redis-py does not know: {error}") from error
    client = LeanClient(connection_pool=pool)
    client.auto_close_connection_pool = True  # as in redis.Redis.from_url: a client that is dropped closes its pool
    return client


def _as_redis(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return scheme.lower().replace("valkey", "redis") + separator + rest
