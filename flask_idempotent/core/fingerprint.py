"""What was asked, as a short digest: equal meaning gives equal digests, any change of meaning another one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, NoReturn

from .keys import digest

_MAX_DIGITS: Final = 1000  # of an integer, written out; int() is quadratic
_BLANK: Final = " \t\n\r"
_MAX_DEPTH: Final = 200  # fixed, so that it does not depend on how deep the caller's stack is
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')

# The canonical text is JSON plus two words that no input can hold, because parsing refuses them:
# [NaN,"11",-1] is the number 11e-1, [Infinity,[["a",1],["a",2]]] an object that names a member twice.
_NUMBER: Final = math.nan
_REPEATED: Final = math.inf


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS and len(text.lstrip("+-")) > _MAX_DIGITS:
        raise ValueError("too many digits")
    return int(text)


def _number(text: str) -> object:
    """Return an int where the value is one, else its shortest digits and power of ten; 1e999999999 stays short."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    written = (whole + fraction).lstrip("0")
    digits = written.rstrip("0")
    if not digits:
        return 0
    power = _integer(exponent or "0") - len(fraction) + len(written) - len(digits)
    sign = "-" if text.startswith("-") else ""
    if 0 <= power <= _MAX_DIGITS - len(digits):
        return int(sign + digits + "0" * power)
    return [_NUMBER, sign + digits, power]


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _members(pairs: list[tuple[str, Any]]) -> object:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    return [_REPEATED, sorted(pairs, key=itemgetter(0))]  # stable: the order of equal names counts


_decode: Final = json.JSONDecoder(
    parse_float=_number, parse_int=_integer, parse_constant=_constant, object_pairs_hook=_members
).raw_decode
_encode: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode


def canonical_json(data: bytes, *, fields: Collection[str] | None = None, ignore: Collection[str] = ()) -> bytes | None:
    """Return one spelling for all texts of one meaning, or None where the raw bytes have to do.

    Numbers are exact decimals. A member that is named twice differs from one named once.

    :param fields: the only members of the outermost object that count; None for all.
    :param ignore: members of the outermost object that do not count.
    """
    try:
        text = data.decode(json.detect_encoding(data), "surrogatepass").strip(_BLANK)
        value, end = _decode(text)
        if end < len(text) or _too_deep(text):
            return None
        if fields is not None or (ignore and not (isinstance(value, dict) and value.keys().isdisjoint(ignore))):
            value = _select(value, fields, ignore)
        return _encode(value).encode("ascii")
    except (ValueError, RecursionError):
        return None


def _too_deep(text: str) -> bool:
    """Tell whether valid JSON nests deeper than we follow."""
    if text.count("[") + text.count("{") <= _MAX_DEPTH:
        return False
    steps = ((c in "[{") - (c in "]}") for c in re.sub(r"[^][}{]+", "", _STRING.sub("", text)))
    return max(accumulate(steps)) > _MAX_DEPTH


def _select(value: object, fields: Collection[str] | None, ignore: Collection[str]) -> object:
    """Keep the outermost members that count; anything but an object counts whole."""
    match value:
        case dict():
            pairs: Iterable[tuple[str, Any]] = value.items()
        case [float(), list() as repeated] if value[0] == _REPEATED:
            pairs = repeated
        case _:
            return value
    return _members([(n, v) for n, v in pairs if n not in ignore and (fields is None or n in fields)])


def fingerprint(
    method: str,
    path: str,
    query: Iterable[tuple[str, str]],
    kind: str,
    content: bytes | Iterable[str | bytes],
) -> str:
    """Return 24 characters that stand for a request.

    :param query: pairs of the query; the order of different names does not count.
    :param kind: media type without its parameters, in lower case; empty if none.
    :param content: the body's bytes, or parts that say what it means.
    """
    pairs = sorted(query, key=itemgetter(0))
    asked = [part for pair in pairs for part in pair]
    body = ("bytes", content) if isinstance(content, bytes) else ("parts", *content)
    return digest(method, path, str(len(pairs)), *asked, kind, *body)
