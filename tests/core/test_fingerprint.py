"""Equal meaning gives equal fingerprints; any change of meaning gives another."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flask_idempotent.core.fingerprint import canonical_json, fingerprint

EQUAL = [
    ('{"a":1,"b":2}', '{"b":2,"a":1}'),
    ('{"a": {"x": 1, "y": [1, 2]}}', '{"a":{"y":[1,2],"x":1}}'),
    ("[1, 1.0, 1e0, 10e-1, 0.1e1, 1E+0]", "[1,1,1,1,1,1]"),
    ("[1.10, -0.50, 12.340e2]", "[1.1, -5e-1, 1234]"),
    ("[0, -0, 0.0, -0.0, 0e5, 0e-99999]", "[0,0,0,0,0,0]"),
    ("1e3", "1000"),
    ("1e999999999", "10e999999998"),
    ("1e-999999999", "0.1e-999999998"),
    ('"\\u00e9\\ud83d\\ude00\\/"', '"é😀/"'),
    (" [ 1 ,\n\t2 ] \r\n", "[1,2]"),
    ('{"a":1,"b":0,"a":2}', '{"b":0,"a":1,"a":2}'),
    ('\ufeff{"a":1}', '{"a":1}'),
]
DIFFERENT = [
    ('{"a":1}', '{"a":"1"}'),
    ('{"a":1}', '{"a":true}'),
    ('{"a":0}', '{"a":false}'),
    ('{"a":null}', "{}"),
    ('{"a":null}', '{"a":"null"}'),
    ("[1,2]", "[2,1]"),
    ("[[1],2]", "[[1,2]]"),
    ("{}", "[]"),
    ("0.1", "0.1000000000000000055"),
    ("9007199254740993", "9007199254740992"),
    ("1e999999999", "1e999999998"),
    ("1e400", "1e401"),
    ("1.1", "-1.1"),
    ("1.1", "11"),
    ("1.1", '"1.1"'),
    ("1.1", "[11,-1]"),
    ("1e5000", "[1,5000]"),
    ('{"a":1,"a":2}', '{"a":2}'),
    ('{"a":1,"a":2}', '{"a":2,"a":1}'),
    ('{"a":1,"a":1}', '{"a":1}'),
    ('{"a":1,"a":2}', '[["a",1],["a",2]]'),
    ('{"a":{"b":1,"b":2}}', '{"a":{"b":2}}'),
    ('"a"', '"A"'),
    ('"é"', '"e\\u0301"'),  # two spellings of one letter are two texts
    ('"a "', '"a"'),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_two_texts_of_one_meaning_are_one(one: str, other: str) -> None:
    canonical = canonical_json(one.encode())
    assert canonical is not None
    assert canonical == canonical_json(other.encode())


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_two_meanings_are_two(one: str, other: str) -> None:
    first, second = canonical_json(one.encode()), canonical_json(other.encode())
    assert first is not None
    assert second is not None
    assert first != second


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        "[1,]",
        "{'a':1}",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "01",
        "1.",
        '"\n"',
        "9" * 5000,
        "1e" + "9" * 5000,
    ],
)
def test_what_is_not_json_has_no_canonical_text(text: str) -> None:
    assert canonical_json(text.encode()) is None


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
def test_the_encoding_does_not_count(encoding: str) -> None:
    text = '{"name": "Zoë"}'
    assert canonical_json(text.encode(encoding)) == canonical_json(text.encode())


def test_bytes_in_no_encoding_have_no_canonical_text() -> None:
    assert canonical_json(b'{"a":"\xff\xfe\xff"}') is None


def test_the_depth_that_is_followed_does_not_depend_on_the_callers_stack() -> None:
    deep = b"[" * 200 + b"]" * 200

    def lower(levels: int) -> bytes | None:
        return canonical_json(deep) if levels == 0 else lower(levels - 1)

    assert canonical_json(deep) == lower(300) == deep
    assert canonical_json(b"[" + deep + b"]") is None
    assert canonical_json(b"[" * 100_000 + b"]" * 100_000) is None
    assert canonical_json(b'{"a":' * 100_000 + b"1" + b"}" * 100_000) is None


def test_brackets_in_text_and_side_by_side_are_no_depth() -> None:
    assert canonical_json(b'["' + b"[{" * 500 + b'"]') is not None
    assert canonical_json(b'["\\"' + b"[" * 500 + b'"]') is not None
    assert canonical_json(b"[" + b"[]," * 500 + b"{}]") is not None


@pytest.mark.parametrize(
    "data",
    [
        b"[1e999999999999999999999999]",
        b"1" * 1_000_000,
        b"0." + b"3" * 1_000_000,
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b'"' + b'\\"' * 500_000,
        b'["[",' + b'"{",' * 250_000 + b"1]",
        b"[" + b"1e9," * 250_000 + b"1]",
    ],
    ids=lambda data: f"{data[:12]!r}",
)
def test_no_text_of_a_megabyte_blows_up(data: bytes) -> None:
    began = time.process_time()
    canonical_json(data)
    assert time.process_time() - began < 5  # seconds; a blow-up takes minutes


def test_members_can_be_chosen_and_left_out_at_the_outermost_level_only() -> None:
    one = b'{"amount":5,"sent_at":"noon","line":{"sent_at":1}}'
    other = b'{"amount":5,"sent_at":"night","line":{"sent_at":1}}'
    inner = b'{"amount":5,"sent_at":"noon","line":{"sent_at":2}}'
    assert canonical_json(one) != canonical_json(other)
    assert canonical_json(one, ignore={"sent_at"}) == canonical_json(other, ignore={"sent_at"})
    assert canonical_json(one, ignore={"sent_at"}) != canonical_json(inner, ignore={"sent_at"})
    assert canonical_json(one, fields={"amount"}) == canonical_json(inner, fields={"amount"}) == b'{"amount":5}'
    assert canonical_json(one, fields={"amount"}, ignore={"amount"}) == b"{}"


def test_a_repeated_member_can_be_left_out_too() -> None:
    assert canonical_json(b'{"t":1,"a":1,"t":2}', ignore={"t"}) == b'{"a":1}'
    assert canonical_json(b'{"a":1,"a":2,"t":1}', ignore={"t"}) == canonical_json(b'{"a":1,"a":2}')


@pytest.mark.parametrize("data", [b"[1,2]", b'"a"', b"null", b"[1.5]", b"1e5000", b"1.5"])
def test_what_has_no_members_counts_whole(data: bytes) -> None:
    assert canonical_json(data, fields=["a"], ignore=["b"]) == canonical_json(data)


texts = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = st.integers() | st.decimals(allow_nan=False, allow_infinity=False, places=3) | st.floats(allow_nan=False)
finite = numbers.filter(lambda number: Decimal(number).is_finite())
values = st.recursive(
    st.none() | st.booleans() | finite | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def meaning(value: Any) -> Any:
    """A value that is equal exactly where the meaning is; True and 1 are kept apart."""
    match value:
        case bool() | None:
            return ("word", value)
        case str():
            return ("text", value)
        case dict():
            return ("object", frozenset((name, meaning(member)) for name, member in value.items()))
        case list():
            return ("array", tuple(map(meaning, value)))
        case _:
            return ("number", Decimal(repr(value) if isinstance(value, float) else value).as_integer_ratio())


@st.composite
def spelled(draw: st.DrawFn, value: Any) -> str:
    """One of the many texts of a value."""
    blank = draw(st.sampled_from(["", " ", "\n", "\t "]))
    match value:
        case bool() | None:
            return json.dumps(value)
        case str():
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        case list():
            return f"[{blank}" + f"{blank},".join(draw(spelled(item)) for item in value) + "]"
        case dict():
            names = draw(st.permutations(list(value)))
            return "{" + f",{blank}".join(f"{draw(spelled(n))}{blank}:{draw(spelled(value[n]))}" for n in names) + "}"
    exact = Decimal(repr(value) if isinstance(value, float) else value)
    written = draw(st.sampled_from([f"{exact:f}", f"{exact:E}", f"{exact:e}".replace("e+", "e")]))
    return (
        written + draw(st.sampled_from(["", "0", "000"])) if "." in written and "e" not in written.lower() else written
    )


@settings(deadline=None)
@given(values, st.data())
def test_every_spelling_of_a_value_has_one_canonical_text(value: Any, data: st.DataObject) -> None:
    canonical = canonical_json(data.draw(spelled(value)).encode())
    assert canonical is not None
    assert canonical == canonical_json(data.draw(spelled(value)).encode())


@settings(deadline=None)
@given(values, values, st.data())
def test_other_values_have_other_canonical_texts(one: Any, other: Any, data: st.DataObject) -> None:
    assume(meaning(one) != meaning(other))
    assert canonical_json(data.draw(spelled(one)).encode()) != canonical_json(data.draw(spelled(other)).encode())


@given(st.binary(max_size=60))
def test_any_bytes_are_survived(data: bytes) -> None:
    assert canonical_json(data) is None or canonical_json(data) == canonical_json(b" " + data + b"\n")


BASE: tuple[Any, ...] = ("POST", "/orders", [("a", "1")], "text/plain", b"x")


@pytest.mark.parametrize(
    "changed",
    [
        ("PUT", *BASE[1:]),
        ("POST", "/orders/", *BASE[2:]),
        ("POST", "/orders", [("a", "2")], *BASE[3:]),
        ("POST", "/orders", [], *BASE[3:]),
        ("POST", "/orders", [("a", "1"), ("a", "1")], *BASE[3:]),
        (*BASE[:3], "application/json", b"x"),
        (*BASE[:4], b"y"),
        (*BASE[:4], b""),
        (*BASE[:4], ["x"]),
        (*BASE[:4], ["x", ""]),
    ],
)
def test_each_part_of_a_request_counts(changed: tuple[Any, ...]) -> None:
    assert fingerprint(*changed) != fingerprint(*BASE)
    assert len(fingerprint(*changed)) == 24


def test_a_pair_of_the_query_is_not_taken_for_what_follows_it() -> None:
    assert fingerprint("POST", "/", [("k", "parts")], "z", b"x") != fingerprint(
        "POST", "/", [], "k", ["z", "bytes", "x"]
    )


def test_the_order_of_different_names_in_the_query_does_not_count() -> None:
    def of(*query: tuple[str, str]) -> str:
        return fingerprint("POST", "/", query, "", b"")

    assert of(("b", "1"), ("a", "1"), ("a", "2")) == of(("a", "1"), ("b", "1"), ("a", "2"))
    assert of(("a", "1"), ("a", "2")) != of(("a", "2"), ("a", "1"))


parts = st.lists(st.text(max_size=4) | st.binary(max_size=4), max_size=4)
requests = st.tuples(
    st.text(max_size=4), st.text(max_size=4), st.lists(st.tuples(st.text(max_size=3), texts), max_size=3)
)


@given(requests, requests, parts, parts)
def test_borders_between_parts_count(one: Any, other: Any, first: list[str | bytes], second: list[str | bytes]) -> None:
    def plain(asked: Any, content: list[str | bytes]) -> Any:
        method, path, query = asked
        as_bytes = [part if isinstance(part, bytes) else part.encode() for part in content]
        return method, path, sorted(query, key=lambda pair: pair[0]), as_bytes

    same = plain(one, first) == plain(other, second)
    assert (fingerprint(*one, "t", first) == fingerprint(*other, "t", second)) is same


def test_fingerprints_stay_what_they_are() -> None:
    """Records outlive an upgrade: another fingerprint would refuse every repetition as other content."""
    pairs = [("b", "2"), ("a", "1")]
    assert fingerprint("POST", "/orders", pairs, "text/plain", b"body") == "iMZRyeOW6E7BL_3mXQ99wbvZ"
    assert fingerprint("POST", "/orders", pairs, "text/plain", ["a", b"\xff"]) == "a_NYPwZQTsap7am9BOugL8Rl"
    canonical = canonical_json(b'{"b": 1.10, "a": [1e9, true], "b": null}')
    assert canonical == b'[Infinity,[["a",[1000000000,true]],["b",[NaN,"11",-1]],["b",null]]]'


def test_numbers_are_followed_to_a_thousand_digits() -> None:
    assert canonical_json(b"1e999") == canonical_json(b"1" + b"0" * 999) != canonical_json(b"1e1000")
    for sign in (b"", b"-"):
        assert canonical_json(sign + b"12e998") == canonical_json(sign + b"12" + b"0" * 998) is not None
        assert canonical_json(sign + b"9" * 1001) is None
    assert canonical_json(b"1e1000") == b'[NaN,"1",1000]'
    assert canonical_json(b"9" * 1000) is not None


def test_nesting_is_followed_to_two_hundred_levels() -> None:
    def nested(levels: int, more: bytes = b"") -> bytes:
        return b"[" * levels + b"]" * (levels - 1) + more + b"]"

    assert canonical_json(nested(200)) == nested(200)
    assert canonical_json(nested(200, b",[]")) == nested(200, b",[]")
    assert canonical_json(nested(201)) is None
    assert canonical_json(b'[{"a":' * 101 + b"0" + b"}]" * 101) is None
