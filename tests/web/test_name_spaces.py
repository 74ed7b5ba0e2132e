"""Whose name space a key lies in while nobody has verified who is asking."""

from __future__ import annotations

import base64
import re
from typing import Any

import flask
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flask_idempotent.web.principals import namespace, viewer
from tests.apps.who import (
    asked,
    authorization,
    basic,
    jwt_of,
    new_app,
)


def space(value: str | None) -> str:
    environ = {} if value is None else {"HTTP_AUTHORIZATION": value}
    return namespace(flask.Request(environ), None)  # type: ignore[arg-type]


def sight(value: str) -> str:
    return viewer(flask.Request({"HTTP_AUTHORIZATION": value}), None)


ANN = jwt_of({"iss": "a", "sub": "ann", "exp": 1})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (basic("ann", "old")["Authorization"], basic("ann", "new")["Authorization"]),
        (basic("ann")["Authorization"], basic("ann")["Authorization"].replace("Basic", "bASIC")),
        (basic(b"\xff\xfe", "a")["Authorization"], basic(b"\xff\xfe", "b")["Authorization"]),
        (basic("ann", "a:b")["Authorization"], basic("ann", "c")["Authorization"]),
        (f"Bearer {ANN}", f"bearer  {jwt_of({'exp': 9, 'sub': 'ann', 'iss': 'a', 'roles': []}, 'x')}"),
        (f"Bearer {jwt_of({'sub': 7})}", f"Bearer {jwt_of({'sub': '7', 'exp': 2})}"),
        (f"Bearer {jwt_of({'sub': 'ann', 'iss': None})}", f"Bearer {jwt_of({'sub': 'ann'})}"),
        (f"Bearer {jwt_of({'sub': '???>>>'})}", f"Bearer {jwt_of({'sub': '???>>>', 'exp': 2})}"),
        (basic("ann")["Authorization"], basic("ann", "new")["Authorization"].replace(" ", "  ")),
        ('Digest username="ann", nc=1', 'digest nc=2, username="ann"'),
        ("Token abc", "Token abc"),
    ],
)
def test_renewed_credentials_keep_their_name_space(one: str, other: str) -> None:
    assert space(one) == space(other) != ""
    assert (sight(one) == sight(other)) == (one == other)


def test_the_payload_of_a_jwt_is_in_the_url_safe_alphabet() -> None:
    token = jwt_of({"sub": "???>>>"})  # what the renewal above is about
    assert "-" in token.split(".")[1]
    assert "_" in token.split(".")[1]


def test_other_credentials_have_other_name_spaces() -> None:
    tokens = [
        {"sub": "ann"},
        {"sub": "ann", "iss": "a"},
        {"sub": "ann", "iss": ""},
        {"sub": "anna", "iss": "a"},
        {"sub": "a", "iss": "ann"},
    ]
    values = [f"Bearer {jwt_of(claims)}" for claims in tokens]
    values += [basic(user)["Authorization"] for user in ("ann", "Ann", b"ann\xff", "ann ")]
    values += [
        "Bearer abc",
        "Bearer abd",
        "Token abc",
        "abc",
        "Digest username=ann",
        "Digest username=bob",
        "Basic",
        "Bearer",
    ]
    assert len({space(value) for value in [*values, None]}) == len(values) + 1


ODD_CLAIMS = [{}, *({"sub": sub} for sub in (None, "", True, 1.5, ["ann"], {"a": 1}))]
ODD_CLAIMS += [{"sub": "ann", "iss": iss} for iss in (7, True, ["a"])]
NO_CLAIMS = [["ann"], "ann", 7, None, b"", b"{", b"\xff\xfe", b'{"sub":"ann"', b'{"sub":%b}' % (b"9" * 5000)]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "values",
    [
        [f"Basic {encoded(f':{secret}')}" for secret in ("secret-1", "secret-2")],
        [f"Basic {given}" for given in (encoded("ann"), encoded("ann:pw"), encoded("ann:pw") + "!", "!", "é")],
        [f"Basic {encoded(f'{name}:pw')}, Basic {encoded('x:y')}" for name in ("ann", "bob")],
        [f"Bearer {jwt_of({**claims, 'exp': exp})}" for claims in ODD_CLAIMS for exp in (1, 2)],
        [f"Bearer {jwt_of(claims)}" for claims in NO_CLAIMS],
        [f"Bearer {jwt_of(b'[' * depth)}" for depth in (1000, 5000)],
        [f"Bearer {jwt_of({'sub': 'ann', 'pad': 'x' * size})}" for size in (9000, 64_000)],
        [f"Bearer {token}" for token in (ANN, f"{ANN}.x", f"{ANN}.y.z", ANN.replace(".", ".!", 1))],
        ["Bearer ..", "Bearer ...", "Bearer a.é.b", "Bearer a.====.b"],
        [
            "Digest",
            "Digest username",
            "Digest username=ann",
            'Digest user="ann"',
            "Digest ,,,=,",
            'Digest "username=ann',
        ],
        ['Digest username="", nc=1', 'Digest username="", nc=2'],
    ],
)
def test_what_cannot_be_read_counts_as_a_whole(values: list[str]) -> None:
    assert len({space(value) for value in values} - {""}) == len(values)


def test_a_header_of_64_kb_and_one_given_twice_get_through_a_real_request() -> None:
    client = new_app().test_client()
    long = asked(client, authorization("Bearer " + "a." * 32_000))
    twice = asked(client, [*basic("ann").items(), *basic("bob").items()])
    assert "" not in (long["namespace"], twice["namespace"])
    assert long["verified"] is twice["verified"] is None


_claims = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["sub", "iss", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_latin = st.text(st.characters(max_codepoint=255))
_headers = st.one_of(
    st.text(),
    _latin,
    st.builds("{} {}".format, st.sampled_from(["Basic", "basic", "Bearer", "DIGEST", "Token"]), _latin),
    st.builds(lambda raw: "Basic " + base64.b64encode(raw).decode(), st.binary()),
    st.builds(lambda raw: f"Bearer {jwt_of(raw)}", st.binary() | _claims),
    st.builds(
        lambda pairs: "Digest " + ", ".join(f"{k}={v}" for k, v in pairs),
        st.lists(st.tuples(st.sampled_from(["username", "username*", "nc"]), _latin)),
    ),
)


@given(_headers)
@example("Bearer a." + "W1tb" * 1900 + ".c")
@example("Digest username*=utf-8''%ff")
def test_no_header_makes_a_name_space_fail(value: str) -> None:
    found = space(value)
    assert (found == "") == (value == "")
    assert found == space(value)
    assert re.fullmatch(r"[A-Za-z0-9_-]{24}|", found)


@given(st.binary(), st.binary(), st.binary(), st.binary())
def test_basic_users_share_a_name_space_only_with_themselves(user: bytes, other: bytes, one: bytes, two: bytes) -> None:
    user, other = user.replace(b":", b"") or b"u", other.replace(b":", b"") or b"o"
    first, second = (basic(name, word)["Authorization"] for name, word in ((user, one), (other, two)))
    assert (space(first) == space(second)) == (user == other)


@given(st.tuples(st.text(min_size=1), st.none() | st.text()), st.tuples(st.text(min_size=1), st.none() | st.text()))
def test_subjects_share_a_name_space_only_with_themselves(one: Any, other: Any) -> None:
    first, second = (f"Bearer {jwt_of({'sub': sub, 'iss': iss})}" for sub, iss in (one, other))
    assert (space(first) == space(second)) == (one == other)


def test_a_verified_principal_is_its_own_name_space_and_viewer() -> None:
    request = flask.Request({"HTTP_AUTHORIZATION": basic("bob")["Authorization"]})
    assert namespace(request, "a digest") == viewer(request, "a digest") == "a digest"
