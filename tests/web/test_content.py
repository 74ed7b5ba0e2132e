"""What a request carries: looked into early, and still there for the view."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask, request
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.exceptions import ClientDisconnected, HTTPException, RequestEntityTooLarge

from flask_idempotent.web.content import Content
from flask_idempotent.web.unread import drain
from tests.apps.reader import JSON, MULTIPART, URLENCODED, multipart


@pytest.fixture
def app() -> Flask:
    return Flask(__name__)


def test_a_form_is_there_for_the_view_as_it_was_sent(app: Flask) -> None:
    sent = b"token=t1&name=Zo%C3%AB&name=%FF&empty="
    views: list[Callable[[], Any]] = [
        lambda: request.get_data(),
        lambda: request.stream.read(),
        lambda: request.environ["wsgi.input"].read(),
    ]
    for view in views:
        with app.test_request_context("/", method="POST", data=sent, content_type=URLENCODED):
            content = Content(request, 1000)
            assert content.values("token") == ["t1"]
            assert view() == sent
    with app.test_request_context("/", method="POST", data=sent, content_type=URLENCODED):
        names = Content(request, 1000).values("name")
        assert names == request.form.getlist("name") == ["Zoë", "%FF"]
        assert request.form["empty"] == ""


def test_files_are_there_for_the_view(app: Flask) -> None:
    body = multipart(('name="token"', b"t1"), ('name="f"; filename="a.bin"', bytes(range(256))))
    with app.test_request_context("/", method="POST", data=body, content_type=MULTIPART):
        content = Content(request, 1000)
        assert content.values("token") == ["t1"]
        content.fingerprint(token_fields=())
        assert request.files["f"].read() == bytes(range(256))


def test_what_somebody_parsed_before_gives_the_same_fingerprint(app: Flask) -> None:
    body = multipart(('name="token"', b"t1"), ('name="f"; filename="a.bin"', b"file"), ('name="a"', b"1"))
    seen = set()
    before: list[Callable[[], Any]] = [
        lambda: None,
        lambda: request.form,
        lambda: request.files["f"].read(2),
        lambda: request.get_data(),
        lambda: request.stream,
        lambda: (request.get_data(), request.form),
    ]
    for earlier in before:
        with app.test_request_context("/", method="POST", data=body, content_type=MULTIPART):
            earlier()
            content = Content(request, 1000)
            assert content.readable
            assert content.values("token") == ["t1"]
            seen.add(content.fingerprint(token_fields=["token"]))
            assert request.files["f"].read() in (b"file", b"le")  # where the earlier reader stopped
    assert len(seen) == 1


def test_a_hook_that_touched_the_form_of_a_json_request_has_read_nothing(app: Flask) -> None:
    body = b'{"token":"t1","a":1}'
    for environ in ({}, {"wsgi.input_terminated": True}):
        with app.test_request_context("/", method="POST", data=body, content_type=JSON, environ_overrides=environ):
            assert not request.form
            content = Content(request, 1000)
            assert content.json_value("token") == "t1"
            assert request.get_json() == {"token": "t1", "a": 1}


@pytest.mark.parametrize("environ", [{}, {"wsgi.input_terminated": True}])
def test_a_body_that_was_read_away_is_not_known(app: Flask, environ: dict[str, Any]) -> None:
    reads: list[Callable[[], Any]] = [
        lambda: request.get_data(cache=False),
        lambda: (request.stream.read(), request.get_data()),
        *([] if environ else [lambda: request.stream.read(3)]),  # a bare stream does not tell that it was begun
    ]
    for read in reads:
        with app.test_request_context("/", method="POST", data=b"{}  ", content_type=JSON, environ_overrides=environ):
            read()
            content = Content(request, 1000)
            assert not content.readable
            assert content.json_value("a") is None


def test_the_views_own_limits_hold_and_are_met_in_the_view(app: Flask) -> None:
    app.config.update(MAX_FORM_MEMORY_SIZE=10, MAX_FORM_PARTS=2)
    body = multipart(('name="token"', b"t1"), ('name="a"', b"x" * 20), ('name="b"', b""))
    with app.test_request_context("/", method="POST", data=body, content_type=MULTIPART):
        content = Content(request, 1000)
        assert content.values("token") == ["t1"]
        content.fingerprint(token_fields=())
        with pytest.raises(RequestEntityTooLarge):
            _ = request.form
    with app.test_request_context("/", method="POST", data=b"token=t1", content_type=URLENCODED):
        app.config["MAX_CONTENT_LENGTH"] = 4
        assert Content(request, 1000).values("token") == ["t1"]
        with pytest.raises(RequestEntityTooLarge):
            _ = request.form


def test_a_form_too_large_for_a_copy_is_read_through_the_framework(app: Flask) -> None:
    with app.test_request_context("/", method="POST", data=b"token=t1&a=" + b"x" * 100, content_type=URLENCODED):
        content = Content(request, 50)
        assert not content.readable
        assert content.values("token") == ["t1"]
        assert request.form["a"] == "x" * 100
        app.config["MAX_CONTENT_LENGTH"] = 20
    sent = {"data": b"token=t1&a=" + b"x" * 100, "content_type": URLENCODED}
    with app.test_request_context("/", method="POST", **sent), pytest.raises(RequestEntityTooLarge):
        Content(request, 50).values("token")


def test_a_client_that_hangs_up_is_a_400_and_nothing_else(app: Flask) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise ConnectionResetError

    for stream in (io.BytesIO(b"token=t"), io.BytesIO(), Broken()):
        environ = {"wsgi.input": stream, "CONTENT_LENGTH": "8"}
        with app.test_request_context("/", method="POST", content_type=URLENCODED, environ_overrides=environ):
            with pytest.raises(ClientDisconnected) as caught:
                Content(request, 1000).values("token")
            assert caught.value.code == 400


def test_a_stream_that_comes_in_pieces_is_read_whole(app: Flask) -> None:
    class Pieces(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 3))

    environ = {"wsgi.input": Pieces(b"token=t1&a=1"), "CONTENT_LENGTH": "12"}
    with app.test_request_context("/", method="POST", content_type=URLENCODED, environ_overrides=environ):
        assert Content(request, 1000).values("token") == ["t1"]
        assert request.form["a"] == "1"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("multipart/form-data", multipart(('name="token"', b"t1"))),
        ("multipart/form-data; boundary=\u00e9", multipart(('name="token"', b"t1"))),
        (MULTIPART, multipart(('name="token"', b"t1"))[:-6]),
        (MULTIPART, b"--b\r\nContent-Type: text/plain\r\n\r\nx\r\n--b--\r\n"),
        (URLENCODED, b"token=t1&a=\xff"),
    ],
)
def test_a_form_that_cannot_be_parsed_says_so_and_has_no_values(app: Flask, kind: str, data: bytes) -> None:
    for max_body in (1000, 3):
        with app.test_request_context("/", method="POST", data=data, content_type=kind):
            content = Content(request, max_body)
            assert content.unparsable
            assert content.values("token") == []
            assert not request.form
    with app.test_request_context("/", method="POST", data=data, content_type=kind):
        assert not request.form  # somebody else tried before
        assert Content(request, 1000).unparsable


@pytest.mark.parametrize(("kind", "data"), [(URLENCODED, b""), (URLENCODED, b"a=1"), (JSON, b"{"), ("", b"x")])
def test_an_empty_form_and_what_claims_to_be_none_are_not_unparsable(app: Flask, kind: str, data: bytes) -> None:
    with app.test_request_context("/", method="POST", data=data, content_type=kind):
        assert not Content(request, 1000).unparsable


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"token":"t1"}', "t1"),
        (b'{"token":""}', ""),
        (b'{"token":"t1","token":"t2"}', "t1,t2"),
        (b'{"token":1}', None),
        (b'{"token":"t1","token":1}', None),
        (b'{"a":{"token":"t1"}}', None),
        (b'[["token","t1"]]', None),
        (b'"token"', None),
        (b'{"token":"t1"', None),
        (b"[" * 100_000, None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_a_member_of_the_outermost_json_object(app: Flask, data: bytes, found: str | None) -> None:
    for max_body in (1_000_000, 0):
        with app.test_request_context("/", method="POST", data=data, content_type="application/vnd.shop+json"):
            assert Content(request, max_body).json_value("token") == found
            assert request.stream.read() == data
    with app.test_request_context("/", method="POST", data=data, content_type="text/plain"):
        assert Content(request, 1000).json_value("token") is None


def test_query_values(app: Flask) -> None:
    with app.test_request_context("/?token=t1&token=t2&a=1", method="POST"):
        assert Content(request, 1000).query_values("token") == ["t1", "t2"]


KINDS = [JSON, URLENCODED, MULTIPART, 'multipart/form-data; boundary="', "", "a/b;"]


@given(st.binary(max_size=80), st.sampled_from(KINDS))
def test_any_body_is_survived_and_left_for_the_view(data: bytes, kind: str) -> None:
    head = b"Content-Disposition: form-data;"
    for body in (data, b"--b\r\n" + data + b"\r\n--b--", b"--b\r\n" + head + data + b"\r\n--b--"):
        sent = {"input_stream": io.BytesIO(body), "content_length": len(body), "content_type": kind}
        with Flask(__name__).test_request_context("/", method="POST", **sent):
            content = Content(request, 1000)
            assert isinstance(content.values("token"), list)
            assert content.unparsable in (True, False)
            assert len(content.fingerprint(token_fields=["token"])) == 24
            assert request.get_data() == body


@given(st.text(max_size=20), st.text(st.characters(codec="latin-1"), max_size=20))
def test_any_query_and_content_type_are_survived(query: str, kind: str) -> None:
    environ = {"QUERY_STRING": query.encode().decode("latin-1"), "CONTENT_TYPE": kind}
    with Flask(__name__).test_request_context("/", method="POST", data=b"x", environ_overrides=environ):
        content = Content(request, 1000)
        try:
            content.fingerprint(token_fields=())
        except HTTPException as error:
            pytest.fail(f"{error!r}")


def test_ten_thousand_fields(app: Flask) -> None:
    body = b"&".join(b"f%d=%d" % (number, number) for number in range(10_000))
    with app.test_request_context("/", method="POST", data=body + b"&token=t1", content_type=URLENCODED):
        assert Content(request, 1_000_000).values("token") == ["t1"]
    parts = multipart(*[(f'name="f{number}"', b"") for number in range(10_000)], ('name="token"', b"t1"))
    with app.test_request_context("/", method="POST", data=parts, content_type=MULTIPART):
        assert Content(request, 1_000_000).values("token") == ["t1"]


@pytest.fixture
def piped(app: Flask) -> Iterator[Callable[..., Any]]:
    """A request whose body comes out of a pipe: what is not read there waits on the wire."""
    ends = []

    def make(data: bytes, *, method: str = "POST", length: int | None = None, **environ: Any) -> Any:
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as sender:
            sender.write(data)
        ends.append(os.fdopen(reading, "rb"))
        environ |= {"wsgi.input": ends[-1], "CONTENT_LENGTH": str(len(data) if length is None else length)}
        return app.test_request_context("/", method=method, content_type=JSON, environ_overrides=environ)

    yield make
    for end in ends:
        end.close()


@pytest.mark.parametrize(("limit", "whole"), [(100, True), (10, True), (9, False), (0, False)])
def test_an_unread_body_is_dropped_up_to_a_limit(piped: Callable[..., Any], limit: int, whole: bool) -> None:
    for environ in ({}, {"wsgi.input_terminated": True}, {"wsgi.input_terminated": True, "CONTENT_LENGTH": ""}):
        with piped(b"0123456789", **environ):
            assert drain(request, limit) is whole
            assert request.get_data() == b""  # a hook that asks now waits for nothing


def test_only_what_is_left_is_dropped(piped: Callable[..., Any]) -> None:
    with piped(b"0123456789"):
        request.stream.read(8)
        assert drain(request, 3)
    with piped(b"{}"):
        assert Content(request, 1000).readable
        assert drain(request)
        assert request.get_json() == {}


def test_a_body_that_breaks_off_is_not_dropped_whole(piped: Callable[..., Any]) -> None:
    with piped(b"01234", length=10):
        assert not drain(request)


def test_methods_without_a_body_and_streams_without_an_end_are_not_read(piped: Callable[..., Any]) -> None:
    for method in ("GET", "HEAD", "OPTIONS"):
        with piped(b"0123456789", method=method):
            assert drain(request)
            assert request.environ["wsgi.input"].read() == b"0123456789"
    with piped(b"5\r\n01234\r\n0\r\n\r\n", CONTENT_LENGTH="", HTTP_TRANSFER_ENCODING="chunked"):
        assert not drain(request)
        assert not Content(request, 1000).readable
