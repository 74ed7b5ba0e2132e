"""A form's bytes, parsed as the framework parses them, but without its limits: those are the view's to meet."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import IO, Final
from urllib.parse import parse_qsl

from werkzeug.datastructures import FileStorage, MultiDict
from werkzeug.formparser import FormDataParser

URLENCODED: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
_CHUNK: Final = 64 * 1024  # bytes: a large upload lies on the disk, and stays there
_DIGEST_BYTES: Final = 18
_LIKE_WERKZEUG: Final = "werkzeug.url_quote"  # its codec error handler for %FF: we see the text that the view sees


@dataclass(frozen=True, slots=True)
class Form:
    """Fields and files, each grouped by name: their order within a name is that of the page."""

    fields: MultiDict[str, str]
    files: MultiDict[str, FileStorage]

    def parts(self, counts: Callable[[str], bool]) -> Iterator[str]:
        """Say what the form means, as parts of a fingerprint.

        :param counts: tells of a name whether it counts.
        """
        # A multipart field without a name has None for one.
        for name, value in self.fields.items(multi=True):
            if counts(name or ""):
                yield from ("field", name or "", value)
        for name, file in self.files.items(multi=True):
            if counts(name or ""):
                yield from ("file", name or "", file.filename or "", file.content_type or "", _file_digest(file))


def parse(data: bytes, kind: str, parameters: dict[str, str]) -> Form:
    """Parse a whole body.

    :param kind: :data:`URLENCODED` or :data:`MULTIPART`.
    :param parameters: those of the media type; multipart needs the boundary.
    :raises ValueError: it is broken; the view sees an empty form then.
    """
    if kind == URLENCODED:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, errors=_LIKE_WERKZEUG)
        return Form(MultiDict(pairs), MultiDict())
    parser = FormDataParser(stream_factory=_in_memory, silent=False)
    _, fields, files = parser.parse(BytesIO(data), kind, len(data), parameters)
    return Form(fields, files)


def _in_memory(*_: object, **__: object) -> IO[bytes]:
    return BytesIO()


def _file_digest(file: FileStorage) -> str:
    """Return the digest of a file, which is left where it stood; one that somebody closed counts by its name alone."""
    try:
        position = file.stream.tell()
        file.stream.seek(0)
        hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        while data := file.stream.read(_CHUNK):
            hasher.update(data)
        file.stream.seek(position)
    except (OSError, ValueError):
        return ""
    return hasher.hexdigest()
