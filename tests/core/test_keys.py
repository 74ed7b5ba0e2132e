"""Names in the store: digests that no two lists of parts share, and the spellings of a token."""

from __future__ import annotations

from itertools import pairwise

import pytest

from flask_idempotent.core.keys import digest, parse_token, store_key, token_digest

TOKEN = "0123456789abcdef0123456789abcdef"
UUID = "01234567-89ab-cdef-0123-456789abcdef"


def test_digests_stay_what_they_are() -> None:
    """Records outlive an upgrade: another digest would run what was done."""
    assert digest("order", b"\x00\xff", "\u00e9\ud800") == "HJr-Osfxhii68_zYcX_qJtk1"
    assert token_digest(TOKEN) == digest("token", TOKEN) == "7OKlS52qmP9W5ww7oSvPWV1F"
    assert store_key("idempotency", digest()) == "idempotency:kaGkgagus_PmJi3hHxQtI0lF"


def test_borders_between_parts_count() -> None:
    lists = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("3:abc",), ("1:a", "2:bc"), ("a", "c", "b")]
    digests = [digest(*parts) for parts in lists]
    assert len(set(digests)) == len(lists)
    assert {len(d) for d in digests} == {24}


def test_text_and_its_bytes_are_the_same_part() -> None:
    assert digest("\u00e9") == digest("\u00e9".encode())


@pytest.mark.case("S1")
@pytest.mark.parametrize("text", [TOKEN, TOKEN.upper(), UUID, UUID.upper(), f"-{TOKEN}", f"{TOKEN[:9]}----{TOKEN[9:]}"])
def test_hyphens_and_case_do_not_matter(text: str) -> None:
    assert parse_token(text) == TOKEN


@pytest.mark.parametrize(
    "text",
    [
        "",
        TOKEN[1:],
        f"-{TOKEN[1:]}",
        f"{TOKEN}0",
        f"{TOKEN}0000",
        "-" * 33 + TOKEN,
        f"{TOKEN[1:]}g",
        f"{TOKEN[1:]}\u0661",  # a digit, but none of ours
        f" {TOKEN}",
        f"{TOKEN}\n",
        f"{{{UUID}}}",
        f"urn:uuid:{UUID}",
        "-" * 32,
    ],
)
def test_what_is_no_token(text: str) -> None:
    assert parse_token(text) is None


def test_tokens_that_differ_have_names_that_differ() -> None:
    names = sorted(token_digest(f"{n:032x}") for n in range(1000))
    assert all(a != b for a, b in pairwise(names))
    assert not any(f"{n:032x}" in names[n] for n in range(1000))
