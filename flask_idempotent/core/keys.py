"""What a key may be, and its name in the store.

Parts are length-prefixed, then hashed, so that no two lists of parts share a key. No message quotes a key.
"""

from __future__ import annotations

import binascii
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn
from uuid import UUID

from .errors import KeyInvalid, KeyMissing

_DIGEST_BYTES: Final = 18  # 24 characters; no padding
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_TOKEN: Final = re.compile(r"[0-9a-fA-F-]{32,64}", re.ASCII)
_HEX_DIGITS: Final = 32
KEY_LIMIT: Final = 255
"""Most characters that a key may have."""
SCENE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}", re.ASCII)
"""Spelling of a scene where clients may name it."""


def digest(*parts: str | bytes) -> str:
    """Return 24 URL-safe characters (144 bits) that stand for the parts and their borders."""
    try:
        # Text in ASCII, as nearly always: in half of the time. Joined by +, not formatted: a str that is an Enum, too,
        # would be written by its name.
        framed = "".join([f"{len(part)}:" + part for part in parts]).encode("ascii")  # type: ignore[operator]  # TypeError
    except (TypeError, UnicodeEncodeError):
        texts = [part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass") for part in parts]
        framed = b"".join([b"%d:%b" % (len(text), text) for text in texts])
    hashed = hashlib.blake2b(framed, digest_size=_DIGEST_BYTES).digest()
    return binascii.b2a_base64(hashed, newline=False).translate(_URL_SAFE).decode("ascii")


def parse_token(text: str) -> str | None:
    """Return the one spelling of a token, or None if it is malformed.

    Any 32 hexadecimal digits are a token; hyphens and case do not matter.
    """
    if not _TOKEN.fullmatch(text):
        return None
    digits = text.replace("-", "").lower()
    return digits if len(digits) == _HEX_DIGITS else None


def token_digest(token: str) -> str:
    """Return the name of a token in stores and logs, where the token itself never appears."""
    return digest("token", token)


def store_key(prefix: str, name: str) -> str:
    """Return the store's key for a digest."""
    return f"{prefix}:{name}"


def key_digest(scope: Iterable[str], key: str) -> str:
    """Return the name of a key in stores and logs, where the key itself never appears.

    :param scope: what the key is unique within, in a fixed order.
    """
    parts = tuple(scope)
    return digest("key", str(len(parts)), *parts, key)


# The syntax of a header line: an Item of RFC 9651 that is a String, or the same text bare.
# The alternatives of each pattern begin with different characters, so that matching is linear.
_QUOTED: Final = re.compile(r'"([ !#-\[\]-~]*(?:\\["\\][ !#-\[\]-~]*)*)"')
_ESCAPE: Final = re.compile(r'\\(["\\])')
_BARE: Final = re.compile(r"[!#-&(-+\--~][!#-+\--~]*")
_PARAMETER: Final = re.compile(
    r""";[ ]* [a-z*][a-z0-9_.*-]*
    (?: = (?: -?(?: [0-9]{1,12}\.[0-9]{1,3} | [0-9]{1,15} )                        # a number
            | @-?[0-9]{1,15}                                                      # a date
            | [A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*                              # a token
            | \?[01]                                                              # a boolean
            | : (?:(?:[A-Za-z0-9+/]{4})*[A-Za-z0-9+/]{2,4} ={0,2})? :                 # bytes
            | "[ !#-\[\]-~]*(?:\\["\\][ !#-\[\]-~]*)*"                            # a string
            | %" (?P<display> [ !#$&-~]*(?:%[0-9a-f]{2}[ !#$&-~]*)* ) "           # a string in UTF-8
    ))?""",
    re.VERBOSE,
)
_WELL_FORMED: Final = (
    f"A key is 1 to {KEY_LIMIT} visible ASCII characters without blank, comma and double quote, "
    'or a text in double quotes in which \\" and \\\\ are the only escapes.'
)


def header_key(value: str) -> str:
    """Return the key in a header line.

    It is a structured field (RFC 9651): an Item of type String, whose parameters do not count. Most clients send the
    text bare; that is the same key.

    :param value: the line without its name; lines that were joined by commas are refused.
    :raises KeyMissing: there is nothing but blanks.
    :raises KeyInvalid: it is malformed or longer than :data:`KEY_LIMIT`; the message says what is right.
    """
    text = value.strip(" \t")
    if not text:
        raise KeyMissing
    quoted = _QUOTED.match(text)
    if quoted:
        _skip_parameters(text, quoted.end())
        key = _ESCAPE.sub(r"\1", quoted[1])
    elif _BARE.fullmatch(text):
        key = text
    else:
        _malformed(_what_is_wrong(text))
    if not key.strip():
        _malformed("The quotes of the idempotency key are empty.")
    if len(key) > KEY_LIMIT:
        raise KeyInvalid(f"The idempotency key has more than {KEY_LIMIT} characters, the most that are accepted.")
    return key


def _malformed(mistake: str) -> NoReturn:
    raise KeyInvalid(f"{mistake} {_WELL_FORMED}")


def _skip_parameters(text: str, at: int) -> None:
    while at < len(text):
        parameter = _PARAMETER.match(text, at)
        if parameter is None or not _is_utf8(parameter["display"]):
            if text[at:].lstrip().startswith(","):
                _malformed("There is more than one idempotency key.")
            _malformed("What follows the quotes of the idempotency key is no parameter.")
        at = parameter.end()


def _is_utf8(display: str | None) -> bool:
    """Tell whether a parameter's string in UTF-8 is that; a parameter of another type is no mistake."""
    if display is None:
        return True
    try:
        re.sub(rb"%(..)", lambda match: binascii.unhexlify(match[1]), display.encode()).decode()
    except UnicodeDecodeError:
        return False
    return True


def _what_is_wrong(text: str) -> str:
    """Say why a text that is neither quoted well nor bare is no key."""
    if re.search(r"[^ -~]", text):
        return "The idempotency key holds a character that is not visible ASCII."
    if text.startswith('"'):
        return "The idempotency key's closing quote is missing, or a backslash escapes something else."
    if text.startswith("'"):
        return "The idempotency key is in single quotes."
    if '"' in text:
        return "The idempotency key holds a double quote but does not begin with one."
    if "," in text:
        return "The idempotency key holds a comma outside of quotes, or there is more than one."
    return "The idempotency key holds a blank outside of quotes."


# The key that a parameter, an expression or a callable gave.
_COMPOSITE: Final = "\x1f"  # begins the text of a list; no other text may hold a control character
_MAX_DEPTH: Final = 8
_LARGEST: Final = 10**KEY_LIMIT - 1
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def key_text(value: object, name: str, parts: Sequence[str] = ()) -> str:
    """Return the text that stands for a key's value.

    Equal numbers have equal texts, and 1 is the same as "1". The parts of a list are length-prefixed: two lists that
    differ have texts that differ, and no list is the same as a plain text.

    :param value: text, a number, a boolean, a UUID (as the URL converter makes them), or a list of these.
    :param name: what the messages call it.
    :param parts: what the messages call the parts of a list, where ``name[0]`` would say less.
    :raises KeyMissing: it, or a part of it, is None, empty or blank; the message names it.
    :raises KeyInvalid: it is something else, holds control characters, or is longer than :data:`KEY_LIMIT`.
    """
    return _text(value, name, parts, 0)


def _text(value: object, name: str, parts: Sequence[str], depth: int) -> str:
    match value:
        case None | "" | []:  # the last one: an empty tuple, too
            raise KeyMissing(f"This operation needs an idempotency key, and {name} is missing or empty.")
        case list() | tuple():
            return _composite(value, name, parts, depth + 1)
    text = _scalar(value, name)
    if len(text) > KEY_LIMIT:
        _too_long(name)
    if not text.strip():
        raise KeyMissing(f"This operation needs an idempotency key, and {name} is blank.")
    if _UNFIT.search(text):
        raise KeyInvalid(f"{name} holds a character that has no place in an idempotency key.")
    return text


def _composite(values: list[object] | tuple[object, ...], name: str, parts: Sequence[str], depth: int) -> str:
    if depth > _MAX_DEPTH:
        raise KeyInvalid(f"{name} is nested too deep for an idempotency key.")
    text = _COMPOSITE
    for index, value in enumerate(values):
        own = parts[index] if index < len(parts) else f"{name}[{index}]"
        part = _text(value, own, (), depth)
        text += f"{len(part)}:{part}"
        if len(text) > KEY_LIMIT:  # at once: a client may send a list of a million
            _too_long(name)
    return text


def _scalar(value: object, name: str) -> str:
    """Return the plain text, whatever a subclass makes of ``str()``."""
    match value:
        case str():
            return str.__str__(value)
        case bool():
            return "true" if value else "false"
        case int():
            if abs(value) > _LARGEST:  # writing it out would be quadratic
                _too_long(name)
            return int.__repr__(value)
        case float() if math.isfinite(value):
            return str(int(value)) if value.is_integer() else float.__repr__(value)
        case UUID():
            return str(value)
    raise KeyInvalid(
        f"{name} can be no idempotency key: it has to be text, a number, true or false, or a list of these."
    )


def _too_long(name: str) -> NoReturn:
    raise KeyInvalid(f"{name} is too long for an idempotency key, which has at most {KEY_LIMIT} characters.")
