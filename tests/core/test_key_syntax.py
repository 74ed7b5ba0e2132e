"""The key in a header line: rows 1 to 6 of the draft's grammar, and another reader of structured fields beside ours."""

from __future__ import annotations

import time
from datetime import UTC

import http_sf
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from flask_idempotent.core.errors import KeyInvalid, KeyMissing
from flask_idempotent.core.keys import KEY_LIMIT, header_key

UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"
VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
HOSTILE = 65_536  # characters; quadratic time would be minutes


def refusal(value: str) -> str:
    """Return the message with which a line is refused."""
    with pytest.raises(KeyInvalid) as caught:
        header_key(value)
    return caught.value.message


def quoted(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@pytest.mark.case("S8", "KEY-11")
def test_row_1_a_quoted_string_is_the_text_without_its_quotes() -> None:
    assert header_key(f'"{UUID}"') == UUID


@pytest.mark.case("KEY-07")
@pytest.mark.parametrize(
    ("line", "key"),
    [
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', "a\\b"),
        (r'"\\\""', '\\"'),
        ('"a b"', "a b"),
        ('" k "', " k "),
        ('"a,b"', "a,b"),
        ('"a;b=1"', "a;b=1"),
        ('"it\'s"', "it's"),
        ('"!~"', "!~"),
    ],
)
def test_row_2_visible_ascii_blanks_and_two_escapes(line: str, key: str) -> None:
    assert header_key(line) == key


@pytest.mark.case("KEY-07", "KEY-11")
@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ('"a\tb"', "not visible ASCII"),
        ("a\tb", "not visible ASCII"),
        ('"a\rb"', "not visible ASCII"),
        ('"a\nb"', "not visible ASCII"),
        ('"k"\n', "no parameter"),
        ("k\n", "not visible ASCII"),
        ("a\x7f", "not visible ASCII"),
        ("a\0", "not visible ASCII"),
        ('"\u0444"', "not visible ASCII"),
        ("\xd1\x84", "not visible ASCII"),  # what a server makes of a Cyrillic letter's bytes
        ("\u0661", "not visible ASCII"),
        ("\U0001f600" * 128, "not visible ASCII"),
        ("\u00a0k", "not visible ASCII"),
        ("'k'", "single quotes"),
        ("'k", "single quotes"),
        ('"k', "closing quote is missing"),
        ('"', "closing quote is missing"),
        (r'"k\"', "closing quote is missing"),
        ('"k\\', "closing quote is missing"),
        (r'"a\nb"', "backslash escapes something else"),
        (r'"a\'b"', "backslash escapes something else"),
        ('k"', "does not begin with one"),
        ('a"b"', "does not begin with one"),
        ('""', "empty"),
        ('"  "', "empty"),
        ('"";a=1', "empty"),
    ],
)
def test_row_2_anything_else_is_refused_with_what_is_wrong_and_what_is_right(line: str, mistake: str) -> None:
    message = refusal(line)
    assert mistake in message
    assert "1 to 255 visible ASCII characters" in message
    assert r"\" and \\ are the only escapes" in message


@pytest.mark.case("S8")
@pytest.mark.parametrize(
    "parameters",
    [
        ";a",
        ";a=1",
        ";  a=1",
        ";a=-999999999999999",
        ";a=1.5",
        ";a=-123456789012.123",
        ';a="x;y=\\"z\\\\"',
        ';a=""',
        ";a=tok/en:x",
        ";a=*",
        ";a=:aGk=:",
        ";a=:aGk:",
        ";a=::",
        ";a=?1",
        ";a=?0",
        ";a=@1659578233",
        ";a=@-1",
        ';a=%"f%c3%bc %f0%9f%98%80 #"',
        ';a=%""',
        ";*=1;a_-.*9=2",
        ";a=1;a=2",
        ";a" * 200,
    ],
)
def test_row_3_parameters_of_every_type_do_not_count(parameters: str) -> None:
    assert header_key(f'"k"{parameters}') == "k"
    assert header_key(f'  "k"{parameters}\t ') == "k"


@pytest.mark.parametrize(
    "parameters",
    [
        ";",
        ";A=1",
        ";1=1",
        ";a =1",
        ";a= 1",
        ";\ta",
        " ;a",
        ";a;",
        ";a=",
        ";a=1.",
        ";a=.5",
        ";a=--1",
        ";a=1234567890123456",
        ";a=1234567890123.1",
        ";a=1.2345",
        ";a=1.2.3",
        ";a=?2",
        ";a=?",
        ";a=@",
        ";a=@1.5",
        ';a="x',
        ';a="\u00fc"',
        ";a=:a:",
        ";a=:aGk===:",
        ";a=:=:",
        ";a=:aGk",
        ";a=:a_b-:",
        ';a=%"%C3%BC"',
        ';a=%"%c3"',
        ';a=%"%c"',
        ';a=%"x',
        ";a=(1 2)",
        ";a='x'",
        "x",
        '"l"',
        " l",
    ],
)
def test_row_3_what_only_looks_like_a_parameter_is_refused(parameters: str) -> None:
    assert "is no parameter" in refusal(f'"k"{parameters}')


@pytest.mark.case("KEY-11")
@pytest.mark.parametrize(
    "line", ['"a", "b"', '"a","b"', '"a" , "b"', '"a",', '"a";x=1, "b"', '"k", "k"', "a,b", "a, b", "k,", ",k", ","]
)
def test_row_4_several_lines_or_a_list_are_no_key(line: str) -> None:
    assert "more than one" in refusal(line)


@pytest.mark.parametrize("line", ['("a" "b")', '("a")'])
def test_row_4_an_inner_list_is_no_key(line: str) -> None:
    refusal(line)


@pytest.mark.case("S8", "KEY-11")
@pytest.mark.parametrize(
    "key",
    [
        "abc",
        UUID,
        "123",
        "*",
        ":",
        "{a}",
        "../",
        "a;b=1",
        "a=b",
        "a\\b",
        "it's",
        "?1",
        "@1",
        "(k)",
        "urn:uuid:1",
        "k'",
        "XkX",
        "XX",
    ],
)
def test_row_5_a_bare_value_is_the_same_key_as_its_quoted_form(key: str) -> None:
    assert header_key(key) == header_key(quoted(key)) == key
    assert header_key(f" \t{key}\t ") == key


@pytest.mark.case("KEY-07")
@pytest.mark.parametrize(
    ("line", "mistake"), [("a,b", "comma"), ("a b", "blank"), ("\xe4", "not visible ASCII"), ("a  b", "blank")]
)
def test_row_5_a_comma_a_blank_and_non_ascii_need_what_the_message_says(line: str, mistake: str) -> None:
    assert mistake in refusal(line)


@pytest.mark.case("KEY-07")
def test_row_5_of_all_characters_just_these_may_be_bare() -> None:
    may_be = {chr(code) for code in range(0x180) if header_key_or_none(f"k{chr(code)}k") is not None}
    assert may_be == set(VISIBLE) - set(',"')
    may_begin = {chr(code) for code in range(0x21, 0x180) if header_key_or_none(f"{chr(code)}k") is not None}
    assert may_begin == may_be - {"'"}


def header_key_or_none(line: str) -> str | None:
    try:
        return header_key(line)
    except KeyInvalid:
        return None


@pytest.mark.case("KEY-07")
@pytest.mark.parametrize("dress", ["{}", '"{}"', '"{}";a=1'])
def test_row_6_our_limit_is_255_characters_and_the_refusal_states_it(dress: str) -> None:
    longest = "x" * 255
    assert header_key(dress.format(longest)) == longest
    for length in (256, 1024, 10_000):
        message = refusal(dress.format("x" * length))
        assert "more than 255 characters" in message  # the limit, not the syntax: it parsed
        assert "escapes" not in message


@pytest.mark.case("KEY-07")
def test_row_6_what_counts_is_the_key_not_its_escapes_and_parameters() -> None:
    assert header_key(quoted('"' * 255) + f';a="{"x" * 1000}"') == '"' * 255
    assert KEY_LIMIT == 255


@pytest.mark.case("KEY-07")
@pytest.mark.parametrize("line", ["", " ", "\t", "  \t  "])
def test_an_empty_line_counts_as_absent(line: str) -> None:
    with pytest.raises(KeyMissing):
        header_key(line)


@pytest.mark.parametrize("line", ["SECRET,SECRET", '"SECRET', "SECRET SECRET", '"SECRET"x', "SECRET" * 50, "'SECRET'"])
def test_no_message_quotes_a_key(line: str) -> None:
    assert "SECRET" not in refusal(line)


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("\xfc", "The idempotency key holds a character that is not visible ASCII."),
        ('"k', "The idempotency key's closing quote is missing, or a backslash escapes something else."),
        ("'k'", "The idempotency key is in single quotes."),
        ('k"', "The idempotency key holds a double quote but does not begin with one."),
        ("a,b", "The idempotency key holds a comma outside of quotes, or there is more than one."),
        ("a b", "The idempotency key holds a blank outside of quotes."),
        ('""', "The quotes of the idempotency key are empty."),
        ('"a","b"', "There is more than one idempotency key."),
        ('"k"X,', "What follows the quotes of the idempotency key is no parameter."),
    ],
)
def test_what_a_refusal_says(line: str, mistake: str) -> None:
    right = (
        "A key is 1 to 255 visible ASCII characters without blank, comma and double quote, "
        r"or a text in double quotes in which \" and \\ are the only escapes."
    )
    assert refusal(line) == f"{mistake} {right}"


HOSTILE_LINES = {
    "bare": "a" * HOSTILE,
    "bare then a blank": "a" * HOSTILE + " a",
    "blanks": '"k"' + " " * HOSTILE + "x",
    "never closed": '"' + "a" * HOSTILE,
    "escapes never closed": '"' + '\\"' * HOSTILE,
    "escapes": '"' + "\\\\" * HOSTILE + '"',
    "quotes": '"' * HOSTILE,
    "commas": "," * HOSTILE,
    "backslashes": '"' + "\\" * (HOSTILE + 1),
    "parameters": '"k"' + ";a" * HOSTILE + "!",
    "numbers": '"k"' + ";a=1.1" * HOSTILE + ".",
    "semicolons": '"k"' + ";" * HOSTILE,
    "blanks in a parameter": '"k";' + " " * HOSTILE,
    "a long name": '"k";' + "a" * HOSTILE + "!",
    "a long number": '"k";a=' + "1" * HOSTILE,
    "a long token": '"k";a=' + "a" * HOSTILE + '"',
    "a string never closed": '"k";a="' + "a" * HOSTILE,
    "bytes never closed": '"k";a=:' + "A" * HOSTILE,
    "bytes, one too many": '"k";a=:' + "A" * (HOSTILE + 1) + ":",
    "UTF-8 cut off": '"k";a=%"' + "%c3" * HOSTILE + '"',
    "UTF-8 never closed": '"k";a=%"' + "%c3%bc" * HOSTILE,
}


@pytest.mark.parametrize("line", HOSTILE_LINES.values(), ids=HOSTILE_LINES)
def test_hostile_lines_are_refused_in_linear_time(line: str) -> None:
    began = time.process_time()
    refusal(line)
    assert time.process_time() - began < 2  # a few ms, or minutes if it were quadratic


# The other reader. Where ours is told apart by design: an empty or blank key, our limit, blanks around the line; and
# that reader knows no dates beyond the year 9999, which the grammar does.
def read_by_the_other(line: str) -> str | None:
    try:
        item, _ = http_sf.parse(line.strip(" \t").encode("utf-8"), tltype="item")  # type: ignore[misc]
    except http_sf.StructuredFieldError as error:
        assume("Date value out of range" not in str(error))
        return None
    return item if type(item) is str else None


def assert_both_agree(line: str) -> None:
    other = read_by_the_other(line)
    if other is not None and (len(other) > KEY_LIMIT or not other.strip(" ")):
        refusal(line)
    else:
        assert header_key_or_none(line) == other


KEYS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=300)
NAMES = st.from_regex(r"[a-z*][a-z0-9_.*-]{0,5}", fullmatch=True)
VALUES = st.one_of(
    st.just(True),
    st.booleans(),
    st.integers(-(10**15) + 1, 10**15 - 1),
    st.decimals(-(10**11), 10**11, places=3),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=9),
    st.binary(max_size=9),
    st.from_regex(r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]{0,6}", fullmatch=True).map(http_sf.Token),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=9).map(http_sf.DisplayString),
    st.datetimes(timezones=st.just(UTC)),
)
ITEMS = st.tuples(KEYS, st.dictionaries(NAMES, VALUES, max_size=4)).map(http_sf.ser)
PIECES = "\"\\;=, \t:@?%*.-a1Zc3\x00\x7f\xfc\u0444'"


@pytest.mark.case("S8")
@given(KEYS, st.dictionaries(NAMES, VALUES, max_size=4))
def test_every_item_that_the_other_writes_is_read_as_its_key(key: str, parameters: dict[str, object]) -> None:
    line = http_sf.ser((key, parameters))  # type: ignore[arg-type]
    assert read_by_the_other(line) == key
    assert_both_agree(line)


@pytest.mark.case("S8")
@given(
    ITEMS, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2), st.sampled_from(PIECES)), min_size=1, max_size=4)
)
def test_on_items_with_mistakes_both_agree(line: str, changes: list[tuple[int, int, str]]) -> None:
    for at, gone, new in changes:
        where = at % (len(line) + 1)
        line = line[:where] + new + line[where + gone :]
    assume(line.strip(" \t").startswith('"'))  # a bare value is our own rule
    assert_both_agree(line)


@given(st.text(PIECES, max_size=12))
@example('a="')
@example("a=:aGk==:")
@example('a=%"%c3%bc"')
@example("a=@-0")
@example("a=-0.0")
def test_on_anything_that_begins_as_an_item_both_agree(rest: str) -> None:
    assert_both_agree(f'"{rest}')
    assert_both_agree(f'"k"{rest}')
    assert_both_agree(f'"k";{rest}')
    assert_both_agree(f'"k";a={rest}')
    assert_both_agree(f'"k";a=:{rest}')
    assert_both_agree(f'"k";a=%"{rest}')


@given(st.text(max_size=40))
def test_any_line_gives_a_key_or_one_of_two_refusals(line: str) -> None:
    try:
        key = header_key(line)
    except (KeyInvalid, KeyMissing):
        return
    assert key.strip(" ")
    assert len(key) <= KEY_LIMIT
    assert set(key) <= set(VISIBLE + " ")
    assert header_key(quoted(key)) == key
