"""What is left of a body that nobody has read when the answer goes out."""

from __future__ import annotations

from io import BytesIO
from typing import IO, Any, Final

from flask import Request
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge
from werkzeug.wsgi import LimitedStream

_CHUNK: Final = 64 * 1024  # bytes
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def drain(request: Request, limit: int = 16 * 1024 * 1024) -> bool:
    """Read and drop a body that nobody has read, so that the client gets to see the answer.

    :param limit: as many bytes at most.
    :returns: False if more is left; the connection has to be closed then.
    """
    if request.method in _BODILESS:
        return True  # a length may be announced that never comes
    environ, stream = request.environ, vars(request).get("stream")
    if _is_buffer(environ["wsgi.input"]):
        return True  # our copy or the server's: nothing waits on the wire (waitress refuses "Connection: close")
    if stream is None:
        stream = _remaining(request)
        if stream is None:
            return "HTTP_TRANSFER_ENCODING" not in environ
        vars(request)["stream"] = BytesIO()  # a hook that still asks finds nothing, and does not wait for it
    return _drop(stream, limit)


def _remaining(request: Request) -> Any:
    """Return the unread body as a stream that ends; None if its end cannot be told."""
    source = request.environ["wsgi.input"]
    if "wsgi.input_terminated" in request.environ:
        return source
    length = request.content_length
    return None if length is None else LimitedStream(source, length)


def _drop(stream: IO[bytes], limit: int) -> bool:
    try:
        while limit > 0:
            data = stream.read(min(_CHUNK, limit))
            if not data:
                return True
            limit -= len(data)
        return not stream.read(1)
    except (OSError, ValueError, ClientDisconnected, RequestEntityTooLarge):
        return False


def _is_buffer(stream: object) -> bool:
    """Tell a body that was received whole, in memory or in a file, from a socket."""
    seekable = getattr(stream, "seekable", None)
    return callable(seekable) and bool(seekable())
