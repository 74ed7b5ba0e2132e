"""Names in the store: digests that no two lists of parts share, the spellings of a token, what a key may be."""

from __future__ import annotations

import math
import time
import uuid
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_idempotent.core.errors import KeyInvalid, KeyMissing
from flask_idempotent.core.keys import (
    KEY_LIMIT,
    digest,
    key_digest,
    key_text,
    parse_token,
    store_key,
    token_digest,
)

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


class Scene(str, Enum):  # noqa: UP042  # that is the point
    """As people write it where StrEnum is not known yet: formatted it is its name."""

    ORDER = "order"


@given(st.lists(st.text() | st.sampled_from(Scene), max_size=5))
def test_text_and_its_bytes_are_one(parts: list[str]) -> None:
    """ASCII goes a way of its own."""
    encoded = [str.encode(part, "utf-8", "surrogatepass") for part in parts]
    assert digest(*parts) == digest(*encoded)
    assert digest(*parts[:1], *encoded[1:]) == digest(*encoded)


def test_an_enum_counts_as_its_value() -> None:
    assert digest(Scene.ORDER, "a") == digest("order", "a")


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


# A key in the store.
@pytest.mark.case("S8")
def test_names_of_keys_stay_what_they_are() -> None:
    """Records outlive an upgrade: another name would run what was done."""
    assert key_digest(("orders", "", "POST"), "k") == digest("key", "3", "orders", "", "POST", "k")
    assert key_digest(["a"], "k") == "PMt8MZn4O9Hz6c1anlwDWayh"
    assert key_text(["a", 1], "n") == "\x1f1:a1:1"


def test_scope_and_key_never_run_together() -> None:
    names = {
        key_digest(("a", "b"), "c"),
        key_digest(("a",), "b"),
        key_digest(("b", "a"), "c"),
        key_digest(("ab",), "c"),
        key_digest(("a", "bc"), ""),
        key_digest((), "c"),
        key_digest(("2",), "c"),
        digest("key", "a", "b", "c"),
        token_digest("c"),
    }
    assert len(names) == 9


SCOPES = st.tuples(st.lists(st.text("ab1:", max_size=2), max_size=3), st.text("ab1:", max_size=2))


@given(SCOPES, SCOPES)
def test_different_scopes_or_keys_have_different_names(
    one: tuple[list[str], str], other: tuple[list[str], str]
) -> None:
    assert (key_digest(*one) == key_digest(*other)) == (one == other)


# The text of a value.
class _Colour(StrEnum):
    RED = "red"


class _Level(IntEnum):
    LOW = 1


class _Shouting(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "other"


@pytest.mark.case("S8", "KEY-07")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("k", "k"),
        (" k ", " k "),
        ("a b,c\"'", "a b,c\"'"),
        ("ключ \U0001f600", "ключ \U0001f600"),
        ("0", "0"),
        ("*:{a}../", "*:{a}../"),
        (0, "0"),
        (-7, "-7"),
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e16, "10000000000000000"),
        (1.5e-7, "1.5e-07"),
        (True, "true"),
        (False, "false"),
        (10**255 - 1, "9" * 255),
        (1 - 10**254, "-" + "9" * 254),
        ("XXXX", "XXXX"),
        ("x" * 255, "x" * 255),
        (_Colour.RED, "red"),
        (_Level.LOW, "1"),
        (_Shouting("k"), "k"),
        (uuid.UUID(UUID), UUID),
    ],
)
def test_text_numbers_and_booleans_can_be_keys(value: object, text: str) -> None:
    assert key_text(value, "k") == text
    assert type(key_text(value, "k")) is str


@pytest.mark.case("S8")
@pytest.mark.parametrize(
    ("value", "named"),
    [
        (None, "json.k"),
        ("", "json.k"),
        ("  ", "json.k"),
        ("\t\n", "json.k"),
        ("\u00a0\u3000", "json.k"),
        ([], "json.k"),
        ((), "json.k"),
        ([None], "json.k[0]"),
        (["a", None], "json.k[1]"),
        (("a", "b", ""), "json.k[2]"),
        (["a", " "], "json.k[1]"),
        (["a", []], "json.k[1]"),
        (["a", ["b", None]], "json.k[1][1]"),
    ],
)
def test_what_is_missing_is_named(value: object, named: str) -> None:
    with pytest.raises(KeyMissing) as caught:
        key_text(value, "json.k")
    assert f" {named} is " in caught.value.message


@pytest.mark.case("S8")
def test_the_parts_of_a_list_may_have_names_of_their_own() -> None:
    for value, named in [((None, 1), "json.user"), ((1, ["a", None]), "json.biz[1]"), ((1, 2, None), "pair[2]")]:
        with pytest.raises(KeyMissing) as caught:
            key_text(value, "pair", ("json.user", "json.biz"))
        assert f" {named} is " in caught.value.message


@pytest.mark.case("KEY-07")
@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({}, "json.k"),
        ({"a": 1}, "json.k"),
        ({1}, "json.k"),
        (b"SECRET", "json.k"),
        (Decimal(1), "json.k"),
        (object(), "json.k"),
        (len, "json.k"),
        (math.nan, "json.k"),
        (math.inf, "json.k"),
        (-math.inf, "json.k"),
        (1j, "json.k"),
        ("SECRET\0", "json.k"),
        ("SECRET\n", "json.k"),
        ("\tSECRET", "json.k"),
        ("SECRET\x7f", "json.k"),
        ("SECRET\x85", "json.k"),
        ("\x1f6:SECRET", "json.k"),
        ("SECRET\ud800", "json.k"),
        (["a", {"SECRET": 1}], "json.k[1]"),
        (["a", ["SECRET\n"]], "json.k[1][0]"),
    ],
)
def test_what_can_be_no_key_is_named_and_never_quoted(value: object, named: str) -> None:
    with pytest.raises(KeyInvalid) as caught:
        key_text(value, "json.k")
    assert caught.value.message.startswith(f"{named} ")
    assert "SECRET" not in caught.value.message


@pytest.mark.case("KEY-07")
@pytest.mark.parametrize(
    "value",
    [
        "x" * 256,
        "x" * 10_000,
        " " * 256,
        10**255,
        -(10**254),
        10**4000,
        1e300,
        ["x" * 251],
        ["x"] * 85,
        ["x" * 100, ["x" * 142]],
    ],
)
def test_the_limit_counts_for_the_whole_text_and_is_stated(value: object) -> None:
    with pytest.raises(KeyInvalid) as caught:
        key_text(value, "json.k")
    end = " is too long for an idempotency key, which has at most 255 characters."
    assert caught.value.message in {f"json.k{end}", f"json.k[0]{end}"}


@pytest.mark.case("KEY-07")
@pytest.mark.parametrize("value", [["x" * 250], ["x"] * 82 + ["xyz", "x"], ["x" * 100, ["x" * 141]]])
def test_just_within_the_limit(value: object) -> None:
    assert len(key_text(value, "k")) == 255


@pytest.mark.case("KEY-07")
def test_hostile_values_are_refused_at_once() -> None:
    nested: object = "x"
    for _ in range(100_000):
        nested = [nested]
    endless: list[object] = []
    endless.append(endless)
    began = time.process_time()
    for value in (["x"] * 5_000_000, [["x"] * 1000] * 5_000_000, nested, endless, 10**1_000_000, "\n" * 50_000_000):
        with pytest.raises(KeyInvalid):
            key_text(value, "k")
    assert time.process_time() - began < 3


def test_lists_may_nest_eight_deep() -> None:
    deep: object = "x"
    for _ in range(8):
        deep = [deep]
    assert key_text(deep, "k").endswith("1:x")
    with pytest.raises(KeyInvalid, match="too deep"):
        key_text([deep], "k")


def test_no_two_small_lists_are_one_key_and_none_is_its_own_element() -> None:
    texts = ["1", "11", "1:1", "2:11", "1:11:1", ":", "11:1"]
    flat = [list(parts) for size in (1, 2, 3) for parts in product(texts, repeat=size)]
    nested = [[one, other] for one in flat[:56] for other in [*texts, *flat[:56]]]
    values = [*texts, *flat, *nested, *([value] for value in flat)]
    different = {repr(value) for value in values}
    assert len({key_text(value, "k") for value in values}) == len(different) > 4000


SCALARS = st.one_of(st.text("1:,a", min_size=1, max_size=3), st.integers(-2, 12), st.booleans(), st.floats(-2, 2))
COMPOSITES = st.recursive(SCALARS, lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=6)


def _fits(value: object) -> bool:
    try:
        return bool(key_text(value, "k"))
    except KeyInvalid:  # longer or deeper than we follow
        return False


def _meaning(value: object) -> object:
    """Return what a value means: 1, 1.0 and "1" are one key, as are True and "true"."""
    if isinstance(value, list):
        return tuple(map(_meaning, value))
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


@pytest.mark.case("S8")
@given(COMPOSITES.filter(_fits), COMPOSITES.filter(_fits))
def test_composites_are_one_key_just_when_they_mean_the_same(one: object, other: object) -> None:
    same = key_text(one, "k") == key_text(other, "k")
    assert same == (_meaning(one) == _meaning(other))


NUMBERS = st.integers(-(10**99), 10**99) | st.floats(-1e99, 1e99) | st.integers(-9, 9).map(float)


@given(NUMBERS, NUMBERS)
def test_numbers_are_one_key_just_when_they_are_equal(one: float, other: float) -> None:
    assert (key_text(one, "k") == key_text(other, "k")) == (one == other)
    assert (key_text(one, "k") == key_text(float(one), "k")) == (one == float(one))


LEAVES = st.none() | SCALARS | st.text(max_size=4) | st.floats()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_whatever_json_holds_it_is_a_key_or_one_of_two_refusals(value: object) -> None:
    try:
        text = key_text(value, "k")
    except (KeyInvalid, KeyMissing):
        return
    assert 0 < len(text) <= KEY_LIMIT
    assert text.strip()
