"""An answer as bytes in a record, and back again."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from flask import Response
from markupsafe import Markup
from werkzeug.datastructures import Headers

_VERSION: Final = 1
_LAYOUT: Final = struct.Struct(">BIII")  # version, length of the head, length of the body, CRC-32 of both
_BODILESS: Final = frozenset({204, 205, 304})
REPLAYED: Final = "Idempotent-Replayed"
"""The header that marks a replay."""
_LEFT_OUT: Final = frozenset({
    # of one exchange only
    "authorization", "date", "server", "set-cookie", "set-cookie2", "www-authenticate", REPLAYED.lower(),
    # of one connection only, or counted anew
    "connection", "content-length", "keep-alive", "te", "trailer", "trailers", "transfer-encoding", "upgrade",
})  # fmt: skip
_BROKEN_LINE: Final = re.compile(r"[\r\n\0]")
_MOST_HEADS: Final = 256  # that are remembered
_NO_FLASHES: Final = b",[]]"  # how such a head ends

_encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

_AnyResponse = TypeVar("_AnyResponse", bound=Response)


class Snapshot(NamedTuple):  # made in every request: a frozen dataclass takes three times as long
    """What is kept of an answer.

    :param status: HTTP status.
    :param headers: pairs in their order, without those of one exchange or connection.
    :param body: the bytes.
    :param viewer: digest of the principal or credentials under which it was recorded; empty if none.
    :param open: False if it was recorded on a request with a session cookie and without a principal.
    :param flashes: category and text of the messages that the view flashed.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    viewer: str = ""
    open: bool = True
    flashes: tuple[tuple[str, Any], ...] = ()


def capture(
    response: Response,
    max_result: int,
    *,
    viewer: str = "",
    open: bool = True,  # noqa: A002  # the field's name
    flashes: Iterable[tuple[str, Any]] = (),
) -> Snapshot | None:
    """Return what is kept of an answer, which is left as it is; None if it is streamed, passed through or too large.

    :param max_result: largest body that is kept (bytes).
    """
    if response.direct_passthrough or not response.is_sequence or response.status_code < 200:
        return None
    chunks = list(response.iter_encoded())
    if sum(map(len, chunks)) > max_result:
        return None
    return Snapshot(
        status=response.status_code,
        headers=tuple(_kept_headers(response)),
        body=b"" if response.status_code in _BODILESS else b"".join(chunks),
        viewer=viewer,
        open=open,
        flashes=tuple(_kept_flashes(flashes)),
    )


def _kept_headers(response: Response) -> Iterable[tuple[str, str]]:
    pairs = [(name.lower(), name, value) for name, value in response.headers]
    named = {each.strip().lower() for lower, _, value in pairs if lower == "connection" for each in value.split(",")}
    left_out = _LEFT_OUT | named if named else _LEFT_OUT
    return [(name, value) for lower, name, value in pairs if lower not in left_out and not lower.startswith("proxy-")]


def _kept_flashes(flashes: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
    """Messages that a session can hold; what has no JSON is dropped."""
    for category, message in flashes:
        if hasattr(message, "__html__"):
            message = Markup(message.__html__())  # noqa: S704  # says of itself that it is safe
        try:
            json.dumps([category, message])
        except (TypeError, ValueError, RecursionError):
            continue
        yield category, message


def pack(snapshot: Snapshot) -> bytes:
    """Return a snapshot as bytes."""
    status, headers, body, viewer, is_open, flashes = snapshot
    if flashes:
        told = [(category, message, isinstance(message, Markup)) for category, message in flashes]
        head = _encode((status, headers, viewer, is_open, told)).encode("ascii")
    else:
        head = _head(status, headers, viewer, is_open)
    check = zlib.crc32(body, zlib.crc32(head))
    return _LAYOUT.pack(_VERSION, len(head), len(body), check) + head + body


# The answers of a view differ in their bodies, hardly in what stands before: that is written and read once.
@lru_cache(maxsize=_MOST_HEADS)
def _head(*fields: Any) -> bytes:
    return _encode((*fields, ())).encode("ascii")


def unpack(data: bytes) -> Snapshot | None:
    """Return the snapshot in these bytes; None if they are damaged or of another version."""
    if len(data) < _LAYOUT.size:
        return None
    version, head_length, body_length, check = _LAYOUT.unpack_from(data)
    start = _LAYOUT.size + head_length
    if version != _VERSION or len(data) != start + body_length or zlib.crc32(data[_LAYOUT.size :]) != check:
        return None
    head = data[_LAYOUT.size : start]
    try:
        # One with messages is read anew: they are each answer's own, may be large, and may be changed by who gets them.
        status, headers, viewer, is_open, flashes = (_read_once if head.endswith(_NO_FLASHES) else _read)(head)
    except (ValueError, TypeError, RecursionError):
        return None
    return Snapshot(status, headers, data[start:], viewer, is_open, flashes)


def _read(head: bytes) -> tuple[int, tuple[tuple[str, str], ...], str, bool, tuple[tuple[str, Any], ...]]:
    """Return what was read, checked: status, headers, viewer, open, flashes.

    :raises ValueError: a field is not what it should be.
    :raises TypeError: likewise.
    """
    status, headers, viewer, is_open, flashes = json.loads(head.decode("ascii"))
    pairs = tuple([(name, value) for name, value in headers])
    for text in (viewer, *[text for pair in pairs for text in pair]):
        if not isinstance(text, str) or _BROKEN_LINE.search(text):
            raise ValueError("text")
    if type(status) is not int or not 200 <= status <= 999 or type(is_open) is not bool:
        raise ValueError("status")
    return status, pairs, viewer, is_open, tuple([_flash(*flash) for flash in flashes])


_read_once: Final = lru_cache(maxsize=_MOST_HEADS)(_read)


def _flash(category: Any, message: Any, markup: Any) -> tuple[str, Any]:
    if not isinstance(category, str) or type(markup) is not bool or (markup and not isinstance(message, str)):
        raise ValueError("flash")
    return category, Markup(message) if markup else message  # noqa: S704  # it was markup when the view flashed it


def to_response(snapshot: Snapshot, response_class: type[_AnyResponse]) -> _AnyResponse:
    """Return the answer once more, marked ``Idempotent-Replayed: true``."""
    body = b"" if snapshot.status in _BODILESS else snapshot.body
    headers = Headers()
    # Put in at once, which takes half of the time. 204 and 304 lose the length.
    headers[:] = [*snapshot.headers, ("Content-Length", str(len(body))), (REPLAYED, "true")]
    response = response_class([body], snapshot.status, headers)
    if "content-type" not in [name.lower() for name, _ in snapshot.headers]:
        del response.headers["Content-Type"]  # the class's own
    return response
