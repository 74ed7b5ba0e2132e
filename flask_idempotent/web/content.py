"""What a request carries, read in a copy of our own: the view finds stream, form and raw bytes as they were sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import IO, Any, Final, cast

from flask import Request
from werkzeug.datastructures import FileStorage, MultiDict
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge
from werkzeug.formparser import FormDataParser
from werkzeug.wsgi import LimitedStream

from ..core.fingerprint import canonical_json, fingerprint
from ..core.keys import digest

_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
_CHUNK: Final = 64 * 1024  # bytes
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


@dataclass(frozen=True, slots=True)
class _Form:
    """A parsed form: its fields and files, each grouped by name."""

    fields: MultiDict[str, str]
    files: MultiDict[str, FileStorage]


_EMPTY: Final = _Form(MultiDict(), MultiDict())


class Content:
    """The body and the query of one request, read at most once and only when asked for.

    Every member may raise werkzeug's ClientDisconnected (400); those that have to leave the reading to the framework,
    because a body is too large or of unknown length, also its RequestEntityTooLarge (413).

    :param request: the request, or Flask's proxy of it.
    :param max_body: largest body of which a copy is made (bytes).
    """

    def __init__(self, request: Request, max_body: int) -> None:
        self._request = request
        self._max_body = max_body

    @property
    def readable(self) -> bool:
        """Whether the content is known: its length was announced, is not too large, and nobody has read it away."""
        return self._parsed_before or self._copy is not None

    @property
    def unparsable(self) -> bool:
        """Whether it claims to be a form and cannot be parsed as one, for want of a boundary for example."""
        if not self._is_form:
            return False
        if self.readable:
            return self._form is None
        return self._request.content_length != 0 and not self._request.form and not self._request.files

    def values(self, name: str) -> list[str]:
        """Return all values of a form's field."""
        if not self._is_form:
            return []
        if self.readable:
            return (self._form or _EMPTY).fields.getlist(name)
        return self._request.form.getlist(name)

    def query_values(self, name: str) -> list[str]:
        """Return all values of a query parameter."""
        return self._request.args.getlist(name)

    def json_value(self, name: str) -> str | None:
        """Return a member of the outermost JSON object if it is text.

        Named several times it is returned as one text with commas, as a repeated header line is.
        """
        if not self._request.is_json:
            return None
        data = self._copy if self.readable else self._request.get_data(cache=True)
        try:
            pairs = json.loads(data or b"", object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            return None
        found = [value for member, value in pairs if member == name] if isinstance(pairs, _Pairs) else []
        return ",".join(found) if found and all(isinstance(value, str) for value in found) else None

    def fingerprint(
        self, *, token_fields: Collection[str], fields: Collection[str] | None = None, ignore: Collection[str] = ()
    ) -> str:
        """Return the digest of what is asked.

        :param token_fields: names of fields that never count: token and CSRF.
        :param fields: the only names that count in query, form and outermost JSON object; None for all.
        :param ignore: names that do not count there.
        """
        request, ignored = self._request, {*token_fields, *ignore}

        def counts(name: str | None) -> bool:
            return name not in ignored and (fields is None or name in fields)

        query = [(name, value) for name, value in request.args.items(multi=True) if counts(name)]
        content = self._asked(counts, fields, ignored)
        return fingerprint(request.method, request.path, query, request.mimetype, content)

    def _asked(
        self, counts: Callable[[str | None], bool], fields: Collection[str] | None, ignored: Collection[str]
    ) -> bytes | Iterator[str | bytes]:
        if not self.readable:
            return iter(("unread", str(self._request.content_length)))
        if self._form is not None:
            return _parts(self._form, counts)
        data = self._copy or b""
        if self._request.is_json and (canonical := canonical_json(data, fields=fields, ignore=ignored)) is not None:
            return iter(("json", canonical))
        return data

    @cached_property
    def _is_form(self) -> bool:
        return self._request.mimetype in _FORMS

    @cached_property
    def _fits(self) -> bool:
        """Whether the length is known and a copy may be made; the same whoever has read the body before."""
        length = self._request.content_length
        if length is None:  # nothing was announced: chunked, or no body at all
            environ = self._request.environ
            return "HTTP_TRANSFER_ENCODING" not in environ and "wsgi.input_terminated" not in environ
        return length <= self._max_body

    @cached_property
    def _parsed_before(self) -> bool:
        """Whether somebody parsed the form before us; the stream is empty then."""
        return self._fits and self._is_form and "form" in vars(self._request)

    @cached_property
    def _copy(self) -> bytes | None:
        """The body's bytes; None if they are too many, of unknown number, or were read away."""
        if not self._fits:
            return None
        length = self._request.content_length or 0
        kept: bytes | None = getattr(self._request, "_cached_data", None)  # of an earlier get_data()
        if kept is not None:
            return kept if len(kept) == length else None
        return self._read(length) if length else b""

    def _read(self, length: int) -> bytes | None:
        request = self._request
        source = request.environ["wsgi.input"]
        # A hook that touches request.form of a JSON request (CSRF protection does) makes the stream, unread.
        touched = vars(request).get("stream")
        if touched is not None and touched is not source and not _unread(touched):
            return None
        stream = LimitedStream(source if touched is None else touched, length)
        try:
            data = stream.read()
        except ClientDisconnected:
            if touched is not None and stream.tell() == 0:
                return None  # read to its end before us
            raise
        request.environ["wsgi.input"] = BytesIO(data)
        vars(request).pop("stream", None)  # made anew from there, under the limits that hold when the view asks
        return data

    @cached_property
    def _form(self) -> _Form | None:
        """The form; None if it is none or cannot be parsed."""
        if not self._is_form:
            return None
        if self._parsed_before:
            form = _Form(self._request.form, self._request.files)
            return form if form.fields or form.files or not self._request.content_length else None
        # Without limits: those of the framework are the view's to meet, and the copy is small.
        parser = FormDataParser(stream_factory=_in_memory, silent=False)
        data = self._copy or b""
        try:
            _, fields, files = parser.parse(
                BytesIO(data), self._request.mimetype, len(data), self._request.mimetype_params
            )
        except ValueError:
            return None
        return _Form(fields, files)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs."""


def _unread(stream: object) -> bool:
    return isinstance(stream, LimitedStream) and stream.tell() == 0


def _in_memory(*_: object, **__: object) -> IO[bytes]:
    return BytesIO()


def _parts(form: _Form, counts: Callable[[str | None], bool]) -> Iterator[str | bytes]:
    for name, value in form.fields.items(multi=True):
        if counts(name):
            yield from ("field", name or "", value)
    for name, file in form.files.items(multi=True):
        if counts(name):
            yield from ("file", name or "", file.filename or "", file.content_type or "", _file_digest(file))


def _file_digest(file: FileStorage) -> str:
    """Digest of a file, which is left where it stood; a file that somebody closed counts by its name alone."""
    try:
        position = file.stream.tell()
        file.stream.seek(0)
        data = file.stream.read()
        file.stream.seek(position)
    except (OSError, ValueError):
        return ""
    return digest(data)


def drain(request: Request, limit: int = 16 * 1024 * 1024) -> bool:
    """Read and drop a body that nobody has read, so that the client gets to see the answer.

    :param limit: as many bytes at most.
    :returns: False if more is left; the connection has to be closed then.
    """
    if request.method in _BODILESS:
        return True  # a length may be announced that never comes
    environ = request.environ
    stream = vars(request).get("stream")
    if isinstance(environ["wsgi.input"], BytesIO):
        return True  # in memory: nothing waits on the wire
    if stream is None:
        stream = _remaining(request)
        if stream is None:
            return "HTTP_TRANSFER_ENCODING" not in environ
        vars(request)["stream"] = BytesIO()  # a hook that still asks finds nothing, and does not wait for it
    return _drop(stream, limit)


def _remaining(request: Request) -> IO[bytes] | None:
    """Return what was not read, as a stream that ends; None if its end cannot be told."""
    source = cast("IO[bytes]", request.environ["wsgi.input"])
    if "wsgi.input_terminated" in request.environ:
        return source
    length = request.content_length
    return None if length is None else cast("IO[bytes]", LimitedStream(source, length))


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
