"""Names in the store: parts are length-prefixed, then hashed, so that no two lists of parts share a key."""

from __future__ import annotations

import binascii
import hashlib
import re
from typing import Final

_DIGEST_BYTES: Final = 18  # 24 characters; no padding
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_TOKEN: Final = re.compile(r"[0-9a-fA-F-]{32,64}", re.ASCII)
_HEX_DIGITS: Final = 32
SCENE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}", re.ASCII)
"""Spelling of a scene where clients may name it."""


def digest(*parts: str | bytes) -> str:
    """Return 24 URL-safe characters (144 bits) that stand for the parts and their borders."""
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
