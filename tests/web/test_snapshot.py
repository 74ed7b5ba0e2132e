"""What is kept of an answer comes back as it was; what belongs to one exchange does not."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask, Response, redirect, send_file
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from flask_idempotent.web.snapshot import Snapshot, capture, pack, to_response, unpack

LIMIT = 1000  # bytes


def replayed(response: Response) -> Response:
    """The answer, captured, packed, unpacked and made again."""
    kept = capture(response, LIMIT)
    assert kept is not None
    unpacked = unpack(pack(kept))
    assert unpacked == kept
    return to_response(unpacked, Response)


ANSWERS: dict[str, Callable[[], Response]] = {
    "page": lambda: Response("<p>Zoë"),
    "bytes": lambda: Response(bytes(range(256)), mimetype="image/png"),
    "json that is not UTF-8": lambda: Response(b'{"a":"\xff"}', mimetype="application/json"),
    "latin-1": lambda: Response("Zoë".encode("latin-1"), content_type="text/plain; charset=iso-8859-1"),
    "json with a charset": lambda: Response("{}", content_type="application/json; charset=utf-8"),
    "no content type": lambda: _without_type(Response(b"x")),
    "created": lambda: Response("", 201, {"Location": "/orders/1", "ETag": '"1"', "Content-Language": "de"}),
    "several lines of a name": lambda: Response("", headers=[("Link", "<a>"), ("X", "1"), ("Link", "<b>")]),
    "redirect": lambda: redirect("/orders/1", 303),  # type: ignore[dict-item,return-value]
    "pieces": lambda: Response(["a", b"b", "c"]),
    "a view's own status": lambda: Response("odd", 299),
    "failure": lambda: Response("gone", 410),
}


def _without_type(response: Response) -> Response:
    del response.headers["Content-Type"]
    return response


@pytest.mark.parametrize("name", ANSWERS)
def test_status_headers_and_bytes_come_back(name: str) -> None:
    first, again = ANSWERS[name](), replayed(ANSWERS[name]())
    assert again.status_code == first.status_code
    assert again.data == first.data
    assert again.headers.get("Idempotent-Replayed") == "true"
    del again.headers["Idempotent-Replayed"]
    first.headers["Content-Length"] = str(len(first.data))
    assert sorted(again.headers) == sorted(first.headers)
    assert again.headers.getlist("Link") == first.headers.getlist("Link")


def test_the_order_of_lines_of_one_name_is_kept() -> None:
    kept = capture(ANSWERS["several lines of a name"](), LIMIT)
    assert kept is not None
    assert [pair for pair in kept.headers if pair[0] != "Content-Type"] == [
        ("Link", "<a>"),
        ("X", "1"),
        ("Link", "<b>"),
    ]


@pytest.mark.parametrize("status", [204, 205, 304])
def test_answers_without_a_body(status: int) -> None:
    pairs = (("ETag", '"1"'),)
    kept = capture(Response(b"unseen", status, pairs), LIMIT)
    assert kept is not None
    assert kept.body == b""
    for snapshot in (kept, Snapshot(status, pairs, b"unseen")):
        again, environ = to_response(snapshot, Response), {"REQUEST_METHOD": "POST"}
        headers = again.get_wsgi_headers(environ)
        assert b"".join(again.get_app_iter(environ)) == b""
        assert headers.get("Content-Length") == {205: "0"}.get(status)
        assert headers["ETag"] == '"1"'


@pytest.mark.parametrize(
    "name",
    [
        "Set-Cookie",
        "WWW-Authenticate",
        "Proxy-Authenticate",
        "Proxy-Connection",
        "Authorization",
        "Date",
        "Server",
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Content-Length",
        "Idempotent-Replayed",
    ],
)
def test_headers_of_one_exchange_or_connection_are_not_kept(name: str) -> None:
    for spelling in (name, name.lower(), name.upper()):
        kept = capture(Response("", headers={spelling: "secret", "X-Kept": "1"}), LIMIT)
        assert kept is not None
        assert b"secret" not in pack(kept)
        assert ("X-Kept", "1") in kept.headers


def test_headers_that_connection_names_are_not_kept() -> None:
    headers = [
        ("Connection", "close, X-Hop"),
        ("Connection", "x-other"),
        ("X-HOP", "1"),
        ("X-Other", "2"),
        ("X-Kept", "3"),
    ]
    kept = capture(Response("", headers=headers), LIMIT)
    assert kept is not None
    assert [name for name, _ in kept.headers if name.startswith("X")] == ["X-Kept"]


def test_streams_files_and_large_answers_are_not_kept_and_not_consumed() -> None:
    streamed = Response(letter for letter in "abc")
    assert capture(streamed, LIMIT) is None
    assert list(streamed.response) == ["a", "b", "c"]

    large = Response(b"x" * (LIMIT + 1))
    assert capture(large, LIMIT) is None
    assert len(large.data) == LIMIT + 1
    assert capture(Response(b"x" * LIMIT), LIMIT) is not None

    assert capture(Response(["passed through"], direct_passthrough=True), LIMIT) is None
    with Flask(__name__).test_request_context():
        for source in (__file__, io.BytesIO(b"file")):
            file = send_file(source, mimetype="text/plain")
            assert capture(file, LIMIT) is None
            file.direct_passthrough = False
            assert b"".join(file.response)
            file.close()


def test_an_interim_status_is_not_kept() -> None:
    assert capture(Response(status=101), LIMIT) is None


def test_the_first_answer_is_left_as_it_was() -> None:
    first = Response(["a", b"b"], headers={"Set-Cookie": "a=1", "Connection": "close", "Date": "now"})
    before = list(first.headers), first.status, first.response
    capture(first, LIMIT)
    assert (list(first.headers), first.status, first.response) == before
    assert first.response == ["a", b"b"]


def test_viewer_and_openness_are_kept() -> None:
    kept = capture(Response("x"), LIMIT, viewer="digest", open=False)
    assert kept is not None
    again = unpack(pack(kept))
    assert again is not None
    assert (again.viewer, again.open) == ("digest", False)


def test_flashed_messages_are_kept_where_a_session_could_hold_them() -> None:
    class Lazy:
        def __html__(self) -> str:
            return "<i>lazy</i>"

    flashes = [
        ("message", "plain"),
        ("error", Markup("<b>bold</b>")),
        ("info", Lazy()),
        ("data", {"id": 1}),
        ("bad", object()),
        ("bad", {1, 2}),
        ("bad", b"bytes"),
    ]
    kept = capture(Response("x"), LIMIT, flashes=flashes)
    assert kept is not None
    again = unpack(pack(kept))
    assert again is not None
    assert again.flashes == (
        ("message", "plain"),
        ("error", Markup("<b>bold</b>")),
        ("info", Markup("<i>lazy</i>")),
        ("data", {"id": 1}),
    )
    assert [isinstance(message, Markup) for _, message in again.flashes] == [False, True, True, False]


def test_a_flashed_list_that_one_reader_changes_is_as_it_was_for_the_next() -> None:
    packed = pack(Snapshot(200, flashes=(("data", ["milk"]),)))
    first, second = unpack(packed), unpack(packed)
    assert first is not None
    assert second is not None
    first.flashes[0][1].append("eggs")
    assert second.flashes == (("data", ["milk"]),)
    assert unpack(packed) == second


def test_the_apps_own_class_of_response_is_used() -> None:
    class Own(Response):
        default_mimetype = "application/xml"

    again = to_response(Snapshot(200, (("X", "1"),), b"x"), Own)
    assert isinstance(again, Own)
    assert "Content-Type" not in again.headers


lines = st.text(st.characters(max_codepoint=0x10FFFF, exclude_characters="\r\n\0"), max_size=10)
snapshots = st.builds(
    Snapshot,
    status=st.integers(200, 999),
    headers=st.lists(st.tuples(lines, lines), max_size=4).map(tuple),
    body=st.binary(max_size=40),
    viewer=lines,
    open=st.booleans(),
    flashes=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5) | st.builds(Markup, st.text(max_size=5)))).map(
        tuple
    ),
)


@given(snapshots)
def test_every_snapshot_survives(snapshot: Snapshot) -> None:
    again = unpack(pack(snapshot))
    assert again == snapshot
    assert again is not None
    assert [type(message) for _, message in again.flashes] == [type(message) for _, message in snapshot.flashes]


@given(snapshots, st.data())
def test_no_damage_goes_unnoticed(snapshot: Snapshot, data: st.DataObject) -> None:
    packed = pack(snapshot)
    assert unpack(packed[: data.draw(st.integers(0, len(packed) - 1))]) is None
    assert unpack(packed + data.draw(st.binary(min_size=1, max_size=4))) is None
    place = data.draw(st.integers(0, len(packed) - 1))
    flipped = packed[place] ^ data.draw(st.integers(1, 255))
    assert unpack(packed[:place] + bytes([flipped]) + packed[place + 1 :]) is None


@given(st.binary(max_size=60))
def test_no_garbage_is_taken_for_an_answer(data: bytes) -> None:
    assert unpack(data) is None


def forged(head: Any, body: bytes = b"", version: int = 1) -> bytes:
    """Bytes whose sums are right, whatever they say."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack(">BIII", version, len(text), len(body), zlib.crc32(text + body)) + text + body


GOOD: list[Any] = [200, [["X", "1"]], "viewer", True, [["message", "hi", False]]]


def test_forging_works_where_nothing_is_wrong() -> None:
    assert unpack(forged(GOOD, b"body")) == Snapshot(200)._replace(
        headers=(("X", "1"),), body=b"body", viewer="viewer", flashes=(("message", "hi"),)
    )


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\xff",
        b"{",
        b"[" * 100_000,
        None,
        5,
        "abcde",
        {},
        GOOD[:4],
        [*GOOD, 1],
        ["200", *GOOD[1:]],
        [True, *GOOD[1:]],
        [200.0, *GOOD[1:]],
        [100, *GOOD[1:]],
        [1000, *GOOD[1:]],
        [200, None, *GOOD[2:]],
        [200, [["X"]], *GOOD[2:]],
        [200, [["X", 1]], *GOOD[2:]],
        [200, [["X", None]], *GOOD[2:]],
        [200, [["X", "1\r\nSet-Cookie: a=1"]], *GOOD[2:]],
        [200, [["X\n", "1"]], *GOOD[2:]],
        [200, [["X", "1", "2"]], *GOOD[2:]],
        [*GOOD[:2], None, *GOOD[3:]],
        [*GOOD[:3], 1, GOOD[4]],
        [*GOOD[:4], None],
        [*GOOD[:4], [["message", "hi"]]],
        [*GOOD[:4], [[1, "hi", False]]],
        [*GOOD[:4], [["message", 5, True]]],
        [*GOOD[:4], [["message", "hi", 1]]],
    ],
    ids=lambda head: f"{head!r:.60}",
)
def test_every_field_is_checked(head: Any) -> None:
    assert unpack(forged(head)) is None


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused(version: int) -> None:
    assert unpack(forged(GOOD, version=version)) is None
