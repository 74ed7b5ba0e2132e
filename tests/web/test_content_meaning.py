"""What of a request counts when two are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask, request

from flask_idempotent.web.content import Content
from tests.apps.reader import JSON, MULTIPART, URLENCODED, multipart


@pytest.fixture
def app() -> Flask:
    return Flask(__name__)


@pytest.fixture
def asked(app: Flask) -> Callable[..., str]:
    """The fingerprint of a request, of which ``token`` and ``csrf_token`` do not count."""

    def fingerprint(data: Any = b"", kind: str = JSON, url: str = "/", method: str = "POST", **options: Any) -> str:
        with app.test_request_context(url, method=method, data=data, content_type=kind):
            return Content(request, 1000).fingerprint(token_fields=["token", "csrf_token"], **options)

    return fingerprint


EQUAL = [
    ({"data": b'{"a":1,"b":2.50}'}, {"data": b'{ "b":2.5, "a":1.0 }'}),
    ({"data": b'{"a":1,"token":"x"}'}, {"data": b'{"csrf_token":"y","a":1}'}),
    ({"data": b"{}", "kind": "application/json; charset=utf-8"}, {"data": b"{}", "kind": "Application/JSON"}),
    ({"data": b"a=1&token=x&csrf_token=1", "kind": URLENCODED}, {"data": b"token=y&a=%31", "kind": URLENCODED}),
    ({"url": "/?token=x&b=1&a=1"}, {"url": "/?a=1&b=1"}),
    (
        {"data": multipart(('name="a"', b"1")), "kind": MULTIPART},
        {"data": multipart(('name="token"', b"x"), ('name="a"', b"1"), boundary="c"), "kind": MULTIPART[:-1] + "c"},
    ),
]
DIFFERENT = [
    ({"data": b'{"a":1}'}, {"data": b'{"a":2}'}),
    ({"data": b'{"a":{"token":1}}'}, {"data": b'{"a":{"token":2}}'}),
    ({"data": b'{"a":1}'}, {"data": b'{"a":1}', "kind": "application/vnd.shop+json"}),
    ({"data": b'{"a":'}, {"data": b'{"a": '}),
    ({"data": b"a=1&b=2", "kind": URLENCODED}, {"data": b"a=1&b=3", "kind": URLENCODED}),
    ({"data": b"a=1&a=2", "kind": URLENCODED}, {"data": b"a=2&a=1", "kind": URLENCODED}),
    ({"data": b"a=1", "kind": URLENCODED}, {"data": b"a=1&a=1", "kind": URLENCODED}),
    ({"data": b"a=1&b=", "kind": URLENCODED}, {"data": b"a=1", "kind": URLENCODED}),
    ({"data": b"x", "kind": "text/plain"}, {"data": b"y", "kind": "text/plain"}),
    ({"url": "/?a=1"}, {"url": "/?a=2"}),
    ({"url": "/a"}, {"url": "/b"}),
    ({"method": "POST"}, {"method": "PUT"}),
]
FILES = [
    ('name="f"; filename="a"', b"1"),
    ('name="f"; filename="a"', b"2"),
    ('name="f"; filename="b"', b"1"),
    ('name="g"; filename="a"', b"1"),
    ('name="f"; filename="a"\r\nContent-Type: text/plain', b"1"),
    ('name="f"', b"1"),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_requests_of_one_meaning(asked: Callable[..., str], one: Any, other: Any) -> None:
    assert asked(**one) == asked(**other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_requests_of_two_meanings(asked: Callable[..., str], one: Any, other: Any) -> None:
    assert asked(**one) != asked(**other)


def test_everything_about_a_file_counts(asked: Callable[..., str]) -> None:
    assert len({asked(multipart(file), MULTIPART) for file in FILES}) == len(FILES)


@pytest.mark.parametrize("kind", [JSON, URLENCODED, "query"])
def test_fields_may_be_chosen_and_left_out(asked: Callable[..., str], kind: str) -> None:
    def of(amount: int, sent_at: int, **options: Any) -> str:
        if kind == JSON:
            return asked(f'{{"amount":{amount},"sent_at":{sent_at}}}', **options)
        pairs = f"amount={amount}&sent_at={sent_at}"
        return asked(url=f"/?{pairs}", **options) if kind == "query" else asked(pairs, kind, **options)

    for options in ({"ignore": ["sent_at"]}, {"fields": ["amount"]}):
        assert of(1, 1, **options) == of(1, 2, **options)
        assert of(1, 1, **options) != of(2, 1, **options)
    assert of(1, 1) != of(1, 2)


def test_of_a_body_too_large_type_and_length_count(app: Flask) -> None:
    def of(data: bytes, kind: str = "text/plain") -> str:
        with app.test_request_context("/", method="POST", data=data, content_type=kind):
            content = Content(request, 3)
            digest = content.fingerprint(token_fields=())
            assert request.get_data() == data
            return digest

    assert of(b"abcd") == of(b"efgh")
    assert len({of(b"abcd"), of(b"abcde"), of(b"abcd", "text/html"), of(b"abc"), of(b"xyz")}) == 5
