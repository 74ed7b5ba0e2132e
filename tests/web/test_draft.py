"""draft-ietf-httpapi-idempotency-key-header-07, statement by statement: rows 1 to 11 of its list of assertions."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from flask import request

from flask_idempotent.stores.memory import MemoryStore
from tests.apps.till import KEY_HEADER, Till, assert_ran
from tests.helpers import Ledger, assert_refused, assert_repeated
from tests.live import HOST
from tests.webservers import WebServer

pytestmark = pytest.mark.case("S8")

UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"


def assert_names(line: str, key: str) -> None:
    """The header line is the key that a parameter names by its plain text."""
    till = Till().add(source=("header", "param"), name="k", fingerprint=False)
    first = till.send(line)
    assert_ran(first, 1)
    assert_repeated(till.send(query_string={"k": key}), first)
    assert_repeated(till.send(line), first)
    assert len(till.ledger) == 1


def assert_refused_as_a_problem(response: Any, reason: str) -> str:
    """A 400 in RFC 9457's shape; return what it tells a person."""
    assert_refused(response, reason, 400)
    problem = response.get_json()
    assert response.mimetype == "application/problem+json"
    assert (problem["status"], problem["code"]) == (400, reason)
    assert problem["type"] == f"urn:flask-idempotency:{reason}"
    assert problem["title"]
    return str(problem["detail"])


def detail_of(line: str) -> str:
    """Send what is no key; return what its refusal says."""
    store = MemoryStore()
    till = Till(store).add()
    detail = assert_refused_as_a_problem(till.send(line), "key_invalid")
    assert (len(till.ledger), list(store.scan())) == (0, [])
    return detail


# --- syntax ------------------------------------------------------------------------------------------------------


def test_row_1_a_string_is_the_text_without_its_quotes():
    assert_names(f'"{UUID}"', UUID)


@pytest.mark.parametrize(
    ("line", "key"),
    [(r'"a\"b"', 'a"b'), (r'"a\\b"', "a\\b"), ('"a b"', "a b"), ('"a,b;c=1"', "a,b;c=1"), ('"~!"', "~!")],
)
def test_row_2_visible_ascii_blanks_and_two_escapes(line: str, key: str):
    assert_names(line, key)


@pytest.mark.parametrize(
    "line", ['"a\tb"', '"a\rb"', '"a\nb"', '"\xe4"', '"ключ"', "'k'", '"k', 'k"', '"a"b"', r'"a\tb"', '"k\\', '""']
)
def test_row_2_anything_else_is_refused(line: str):
    assert "255 visible ASCII characters" in detail_of(line)


@pytest.mark.parametrize("parameters", [";a=1", ';a;b="x, y"', "; a=?0;a=:aGk=:"])
def test_row_3_parameters_do_not_count(parameters: str):
    assert_names(f'"k"{parameters}', "k")


@pytest.mark.parametrize("line", ['"a", "b"', '"a","a"', "a,b", '("a" "b")', '"a";x, "b"'])
def test_row_4_a_list_is_no_key(line: str):
    detail_of(line)


def test_row_4_several_lines_are_no_key():
    till = Till().add()
    lines = [(KEY_HEADER, '"a"'), (KEY_HEADER, '"a"')]
    assert "more than one" in assert_refused_as_a_problem(till.send(headers=lines), "key_invalid")
    assert_ran(till.send(headers=lines[:1]), 1)


@pytest.fixture(params=["gunicorn", "waitress"])
def served(request: pytest.FixtureRequest, redis_url: str, tmp_path: Any) -> tuple[WebServer, Ledger]:
    """``tests.apps.till`` behind a real server."""
    env = {"STORE": redis_url, "LEDGER": str(tmp_path / "ledger")}
    start = request.getfixturevalue(request.param)
    return start("tests.apps.till:create_app()", env=env), Ledger(tmp_path / "ledger")


def test_rows_1_to_5_hold_for_the_bytes_that_a_real_server_hands_on(served: tuple[WebServer, Ledger]):
    server, ledger = served
    for lines in ([b'"k"', b'"k"'], [b"k", b"l"], [b'"k","l"'], [b'"\xc3\xa4"'], [b"\xff"], [b"'k'"], [b'"a\tb"']):
        assert _raw(server, lines).startswith(b"HTTP/1.1 400"), lines
    assert ledger.entries == []
    answers = [_raw(server, [line]) for line in (b'"k"', b"k", b'  "k";v=1 ')]
    assert all(b"HTTP/1.1 201" in answer and b'"number":1' in answer for answer in answers)
    assert [b"Idempotent-Replayed: true" in answer for answer in answers] == [False, True, True]
    assert len(ledger) == 1


def _raw(server: WebServer, lines: list[bytes]) -> bytes:
    """Post with these lines of the header; return the whole answer."""
    head = [b"POST /orders HTTP/1.1", b"Host: x", b"Content-Length: 0", b"Connection: close"]
    head += [b"Idempotency-Key: " + line for line in lines]
    with socket.create_connection((HOST, server.port), timeout=10) as connection:
        connection.sendall(b"\r\n".join([*head, b"", b""]))
        return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.parametrize("key", ["abc", UUID, "123", "*", "a=b;c", "a\\b"])
def test_row_5_a_bare_value_is_the_key_of_its_quoted_form(key: str):
    quoted = '"' + key.replace("\\", "\\\\") + '"'
    assert_names(key, key)
    till = Till().add()
    first = till.send(key)
    assert_ran(first, 1)
    assert_repeated(till.send(quoted), first)


@pytest.mark.parametrize(("line", "mistake"), [("a,b", "comma"), ("a b", "blank"), ("\xe4", "not visible ASCII")])
def test_row_5_a_bare_value_has_no_comma_blank_or_other_character(line: str, mistake: str):
    assert mistake in detail_of(line)


@pytest.mark.parametrize("dress", ["{}", '"{}"', '"{}";a=1'])
def test_row_6_what_is_too_long_for_us_parses_and_the_refusal_states_our_limit(dress: str):
    for length in (256, 1024):
        assert "more than 255 characters" in detail_of(dress.format("x" * length))
    assert_names(dress.format("x" * 255), "x" * 255)


# --- the life, the fingerprint, the policy -----------------------------------------------------------------------


def policy_of(till: Till) -> dict[str, Any]:
    """Return what ``flask idempotency policy`` prints of each route."""
    printed = till.app.test_cli_runner().invoke(args=["idempotency", "policy", "--format", "json"])
    assert printed.exit_code == 0, printed.output
    return {route["rule"]: route for route in json.loads(printed.stdout)["routes"]}


def test_rows_8_and_10_every_protected_route_is_in_the_policy_which_says_when_a_key_expires(
    timed: tuple[Any, Callable[[float], None]],
):
    store, move = timed
    till = Till(store, RESULT_TTL=7200).add("/short", ttl=600).add("/long", "POST", "PUT").add_unmarked()
    till.add("/pay/<number>", "PATCH", endpoint="pay").add("/callback", source="param").add(
        "/form-order", source="token"
    )
    policy = policy_of(till)
    assert set(policy) == {"/short", "/long", "/pay/<number>", "/callback", "/form-order"}
    lives = {path: policy[path]["lives"]["key_result"] for path in ("/short", "/long")}
    assert lives == {"/short": 600, "/long": 7200}
    for path, life in lives.items():
        first = till.send("k", path)
        assert_ran(first, len(till.ledger))
        move(life - 60)
        assert_repeated(till.send("k", path), first)
        move(120)
        before = len(till.ledger)
        assert_ran(till.send("k", path), before + 1)


@pytest.mark.parametrize(
    ("options", "counting"),
    [
        ({}, {"amount", "note"}),
        ({"fingerprint": ("amount",)}, {"amount"}),
        ({"ignore": ("amount",)}, {"note"}),
        ({"fingerprint": lambda: request.get_json()["note"]}, {"note"}),
        ({"fingerprint": False}, set()),
    ],
    ids=["whole", "named", "left out", "callable", "none"],
)
def test_row_9_the_fingerprint_is_of_the_whole_payload_of_parts_or_of_nothing(options: Any, counting: set[str]):
    till = Till().add(**options)
    sent = {"amount": 1, "note": "n"}
    first = till.send("k", json=sent)
    assert_ran(first, 1)
    assert_repeated(till.send("k", json=sent), first)
    for name in sent:
        other = till.send("k", json={**sent, name: "changed"})
        if name in counting:
            assert_refused(other, "key_reused", 422)
        else:
            assert_repeated(other, first)
    assert len(till.ledger) == 1


@pytest.mark.parametrize("url", [None, "https://api.example/idempotency", "/policy"])
def test_row_11_a_missing_key_is_a_problem_with_a_link_to_the_policy_if_there_is_one(url: str | None):
    till = Till(POLICY_URL=url).add()
    refused = till.send()
    assert KEY_HEADER in assert_refused_as_a_problem(refused, "key_missing")
    assert refused.headers.get("Link") == (f'<{url}>; rel="describedby"' if url else None)
    assert len(till.ledger) == 0
