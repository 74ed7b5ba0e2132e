"""Random forms, files and queries: fingerprints are equal just where the meaning is. (JSON: tests/core.)"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from flask import Flask, request
from hypothesis import assume, example, given
from hypothesis import strategies as st

from flask_idempotent.web.content import Content
from tests.apps.reader import MULTIPART, URLENCODED, multipart

TOKEN, CSRF = "token", "csrf_token"
app = Flask(__name__)

# Few and short, so that two of them are often equal, or nearly.
NAMES = st.sampled_from(["a", "b", "ab", "a&b", "ü", "file"])
TEXTS = st.text("ab1&=+% \n\r;ü", max_size=3)
FIELDS = st.lists(st.tuples(NAMES, TEXTS), max_size=4)


class File(NamedTuple):
    field: str
    name: str
    kind: str
    content: bytes


FILE_NAMES = st.sampled_from(["", "a.txt", "b.txt"])
KINDS = st.sampled_from(["", "text/plain", "image/png"])
CONTENTS = st.sampled_from([b"", b"1", b"2", b"1\r\n", b"field"])
FILES = st.lists(st.builds(File, NAMES, FILE_NAMES, KINDS, CONTENTS), max_size=3)
DETAILS: dict[type, Any] = {tuple: (NAMES, TEXTS), File: (NAMES, FILE_NAMES, KINDS, CONTENTS)}


class Sent(NamedTuple):
    """A form as its page means it."""

    fields: list[tuple[str, str]]
    files: list[File]
    query: list[tuple[str, str]]

    @property
    def meaning(self) -> Any:
        """Fields and files count grouped by their names, as a view gets them; the query sorted by name."""
        return grouped(self.fields), grouped(self.files), sorted(self.query, key=lambda pair: pair[0])


def grouped(entries: list[Any]) -> list[Any]:
    names = list(dict.fromkeys(entry[0] for entry in entries))
    return sorted(entries, key=lambda entry: names.index(entry[0]))


FORMS = st.builds(Sent, FIELDS, st.just([]), FIELDS)
UPLOADS = st.builds(Sent, FIELDS, FILES, st.just([]))


@st.composite
def escaped(draw: st.DrawFn, pairs: list[tuple[str, str]]) -> str:
    """One of the spellings of pairs in a query or an urlencoded body, with a token and without."""
    own = [(name, draw(TEXTS)) for name in draw(st.lists(st.sampled_from([TOKEN, CSRF]), max_size=2))]
    spelled = []
    for name, value in draw(interleaved(pairs, own)):
        spell = draw(st.sampled_from([quote_plus, quote, every_byte]))
        spelled.append(f"{spell(name)}={spell(value)}")
    return "&".join(spelled)


def every_byte(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


@st.composite
def interleaved(draw: st.DrawFn, one: list[Any], other: list[Any]) -> list[Any]:
    """Put the two together, each in its own order."""
    places = sorted(draw(st.integers(0, len(one))) for _ in other)
    merged = list(one)
    for place, entry in reversed(list(zip(places, other, strict=True))):
        merged.insert(place, entry)
    return merged


@st.composite
def parts(draw: st.DrawFn, sent: Sent) -> tuple[bytes, str]:
    """One of the spellings of a multipart form, and its media type."""
    boundary = draw(st.sampled_from(["b", "----WebKitFormBoundary7MA4YWxkTrZu0gW", "x--y"]))
    fields = [(f'name="{name}"', value.encode()) for name, value in sent.fields]
    files = []
    for field, name, kind, content in sent.files:
        header = f"\r\nContent-Type: {kind}" if kind else ""
        files.append((f'name="{field}"; filename="{name}"{header}', content))
    own = [
        (f'name="{name}"', draw(TEXTS).encode()) for name in draw(st.lists(st.sampled_from([TOKEN, CSRF]), max_size=2))
    ]
    body = multipart(*draw(interleaved(draw(interleaved(fields, files)), own)), boundary=boundary)
    return body, MULTIPART.replace("boundary=b", f"boundary={boundary}")


def of(body: bytes, kind: str, query: str = "") -> str:
    with app.test_request_context(f"/?{query}", method="POST", data=body, content_type=kind):
        return Content(request, 100_000).fingerprint(token_fields=[TOKEN, CSRF])


@st.composite
def changed(draw: st.DrawFn, forms: st.SearchStrategy[Sent]) -> tuple[Sent, Sent]:
    """Two forms, of which the other is often the one but for a detail, or the same in another order."""
    one = draw(forms)
    if draw(st.booleans()):
        return one, draw(forms)
    at = draw(st.sampled_from(["fields", "files", "query"]))
    entries = list(getattr(one, at))
    assume(entries)
    place = draw(st.integers(0, len(entries) - 1))
    match draw(st.sampled_from(["move", "drop", "twice"])):
        case "move":
            entries.insert(draw(st.integers(0, len(entries) - 1)), entries.pop(place))
        case "drop":
            del entries[place]
        case "twice":
            entries.append(entries[place])
    return one, one._replace(**{at: entries})


@st.composite
def edited(draw: st.DrawFn) -> tuple[Sent, Sent]:
    """Two forms, of which the other has one detail of one field or file changed."""
    one = draw(st.builds(Sent, FIELDS, FILES, st.just([])).filter(lambda sent: sent.fields or sent.files))
    entries: list[Any] = [*one.fields, *one.files]
    place = draw(st.integers(0, len(entries) - 1))
    values = [*entries[place]]
    detail = draw(st.integers(0, len(values) - 1))
    domain = DETAILS[type(entries[place])][detail]
    values[detail] = draw(domain.filter(lambda value: value != values[detail]))
    entries[place] = File(*values) if isinstance(entries[place], File) else tuple(values)
    return one, Sent(entries[: len(one.fields)], entries[len(one.fields) :], [])


@given(changed(FORMS), st.data())
@example((Sent([("a", "1"), ("b", "2"), ("a", "3")], [], []), Sent([("a", "1"), ("a", "3"), ("b", "2")], [], [])), None)
def test_forms_and_queries_are_equal_just_where_their_meaning_is(pair: tuple[Sent, Sent], data: Any) -> None:
    def drawn(pairs: list[tuple[str, str]]) -> str:
        return data.draw(escaped(pairs)) if data else "&".join(f"{name}={value}" for name, value in pairs)

    one, other = (of(drawn(sent.fields).encode(), URLENCODED, drawn(sent.query)) for sent in pair)
    assert (one == other) == (pair[0].meaning == pair[1].meaning)


@given(changed(UPLOADS), st.data())
def test_forms_with_files_are_equal_just_where_their_meaning_is(pair: tuple[Sent, Sent], data: st.DataObject) -> None:
    one, other = (of(*data.draw(parts(sent))) for sent in pair)
    assert (one == other) == (pair[0].meaning == pair[1].meaning)


@given(edited(), st.data())
def test_every_detail_of_a_field_and_of_a_file_counts(pair: tuple[Sent, Sent], data: st.DataObject) -> None:
    one, other = (of(*data.draw(parts(sent))) for sent in pair)
    assert one != other


@given(UPLOADS, st.data())
def test_every_spelling_of_a_form_with_files_is_the_same(sent: Sent, data: st.DataObject) -> None:
    assert of(*data.draw(parts(sent))) == of(*data.draw(parts(sent)))


@given(FORMS, st.data())
def test_every_spelling_of_a_form_and_a_query_is_the_same(sent: Sent, data: st.DataObject) -> None:
    spelled = [(data.draw(escaped(sent.fields)).encode(), data.draw(escaped(sent.query))) for _ in range(2)]
    assert of(spelled[0][0], URLENCODED, spelled[0][1]) == of(spelled[1][0], URLENCODED, spelled[1][1])
