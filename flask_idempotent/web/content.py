"""What a request carries, read in a copy of our own: the view finds stream, form and raw bytes as they were sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, Final

from flask import Request
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import ClientDisconnected
from werkzeug.wsgi import LimitedStream, get_content_length

from ..core.fingerprint import canonical_json, fingerprint
from . import forms

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

_CHUNK: Final = 64 * 1024  # bytes
_UNREAD: Final = object()
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class Content:
    """The body and the query of one request, read at most once and only when asked for.

    Every member may raise werkzeug's ClientDisconnected (400); where a body is too large or of unknown length the
    framework does the reading, and its RequestEntityTooLarge (413) passes through, too.

    :param request: the request, or Flask's proxy of it.
    :param max_body: largest body of which a copy is made (bytes).
    """

    # Neither functools.cached_property, which takes a lock for each value, nor werkzeug's: this runs in every request.
    __slots__ = ("_copied", "_fits", "_is_form", "_length", "_parsed", "_parsed_before", "_request")

    def __init__(self, request: Request, max_body: int) -> None:
        self._request = request
        self._is_form = request.mimetype in (forms.URLENCODED, forms.MULTIPART)
        self._length = get_content_length(request.environ)
        self._fits = _fits(request.environ, self._length, max_body)
        # Whether somebody parsed the form before us; the stream is empty then.
        self._parsed_before = self._fits and self._is_form and "form" in vars(request)
        self._copied: Any = _UNREAD
        self._parsed: Any = _UNREAD

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
        return self._length != 0 and not (self._request.form or self._request.files)

    def values(self, name: str) -> list[str]:
        """Return all values of a form's field."""
        return self.form().getlist(name)

    def query_values(self, name: str) -> list[str]:
        """Return all values of a query parameter."""
        return self._request.args.getlist(name)

    def json_value(self, name: str) -> str | None:
        """Return a member of the outermost JSON object if it is text.

        Named several times it is returned as one text with commas, as a repeated header line is.
        """
        found = self.members(name)
        return ",".join(found) if found and all(isinstance(value, str) for value in found) else None

    def members(self, name: str) -> list[Any]:
        """Return all values of a member of the outermost JSON object."""
        found = self._parsed_json(_Members)
        return [value for member, value in found.pairs if member == name] if isinstance(found, _Members) else []

    def json(self) -> Any:
        """Return the JSON that came; None if there is none, or it cannot be parsed."""
        return self._parsed_json(dict)

    def form(self) -> MultiDict[str, str]:
        """Return the fields of the form; none if it is no form."""
        if not self._is_form:
            return MultiDict()
        if self.readable:
            return self._form.fields if self._form is not None else MultiDict()
        return self._request.form

    def fingerprint(
        self, *, token_fields: Collection[str], fields: Collection[str] | None = None, ignore: Collection[str] = ()
    ) -> str:
        """Return the digest of what is asked.

        :param token_fields: names that never count: those of the token and of CSRF protection.
        :param fields: the only names that count in query, form and outermost JSON object; None for all.
        :param ignore: names that do not count there.
        """
        request, ignored = self._request, {*token_fields, *ignore}

        def counts(name: str) -> bool:
            return name not in ignored and (fields is None or name in fields)

        query: list[tuple[str, str]] = []
        if request.query_string:
            query = [(name, value) for name, value in request.args.items(multi=True) if counts(name)]
        copy, readable = self._copy or b"", self.readable
        content: bytes | Iterable[str | bytes] = copy
        if not readable and self._is_form and "form" in vars(request):
            # It was parsed in any case, for its token: the length would count the boundary, which some browsers vary.
            content = forms.Form(request.form, request.files).parts(counts)
        elif not readable:
            content = ("unread", str(self._length))
        elif self._form is not None:
            content = self._form.parts(counts)
        elif request.is_json:
            canonical = canonical_json(copy, fields=fields, ignore=ignored)
            content = copy if canonical is None else ("json", canonical.decode("ascii"))
        return fingerprint(request.method, request.path, query, request.mimetype, content)

    def _parsed_json(self, pairs: Callable[[list[tuple[str, Any]]], Any]) -> Any:
        if not self._request.is_json:
            return None
        try:
            return json.loads((self._copy if self.readable else self._all_data()) or b"", object_pairs_hook=pairs)
        except (ValueError, RecursionError):
            return None

    def _all_data(self) -> bytes:
        """Let the framework read a body of any length, under its limits."""
        data = self._request.get_data(cache=True)
        vars(self._request)["stream"] = BytesIO(data)
        self._copied = data  # it was read in any case, for its token or key: then it counts by its meaning, too
        return data

    @property
    def _copy(self) -> bytes | None:
        """The body's bytes; None if they are too many, of unknown number, or were read away."""
        if self._copied is _UNREAD:
            self._copied = self._read_copy()
        copied: bytes | None = self._copied
        return copied

    def _read_copy(self) -> bytes | None:
        if not self._fits:
            return None
        length = self._length or 0
        kept: bytes | None = getattr(self._request, "_cached_data", None)  # of an earlier get_data()
        if kept is not None:
            return kept if len(kept) == length else None
        return self._read(length) if length else b""

    def _read(self, length: int) -> bytes | None:
        request = self._request
        source = request.environ["wsgi.input"]
        # A hook that touches request.form of a JSON request (CSRF protection does) makes the stream, unread.
        made = vars(request).get("stream")
        if made is not None and made is not source and not _is_unread(made):
            return None
        data = _read_exactly(length, source if made is None else made)
        if not data and made is not None:
            return None  # read to its end before us
        if len(data) < length:
            raise ClientDisconnected()
        request.environ["wsgi.input"] = BytesIO(data)
        request.environ["wsgi.input_terminated"] = True  # it ends by itself, and needs no stream around it that counts
        vars(request).pop("stream", None)  # made anew from there, under the limits that hold when the view asks
        return data

    @property
    def _form(self) -> forms.Form | None:
        """The form; None if it is none or cannot be parsed."""
        if self._parsed is _UNREAD:
            self._parsed = self._parse() if self._is_form else None
        parsed: forms.Form | None = self._parsed
        return parsed

    def _parse(self) -> forms.Form | None:
        request = self._request
        if self._parsed_before:
            form = forms.Form(request.form, request.files)
            return form if form.fields or form.files or not self._length else None
        try:
            return forms.parse(self._copy or b"", request.mimetype, request.mimetype_params)
        except ValueError:
            return None


def _fits(environ: WSGIEnvironment, length: int | None, max_body: int) -> bool:
    """Return whether the length is known and a copy may be made; the same whoever has read the body before."""
    if length is None:  # nothing was announced: chunked, or no body at all
        return "HTTP_TRANSFER_ENCODING" not in environ and "wsgi.input_terminated" not in environ
    return length <= max_body


class _Members:
    """A JSON object as its pairs. No list: as a key an object within would be taken for one."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _is_unread(stream: object) -> bool:
    return isinstance(stream, LimitedStream) and stream.tell() == 0


def _read_exactly(length: int, stream: IO[bytes]) -> bytes:
    """Return that many bytes, or fewer if the stream ends before.

    :raises ClientDisconnected: the connection broke.
    """
    chunks = []
    try:
        while length > 0 and (chunk := stream.read(length)):
            chunks.append(chunk)
            length -= len(chunk)
    except (OSError, ValueError):
        raise ClientDisconnected() from None
    return b"".join(chunks)
