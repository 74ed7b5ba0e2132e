"""Uploads and answers over real sockets: nothing is read twice, lost, or announced with a wrong length."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import secrets
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.datastructures import FileStorage
from werkzeug.test import encode_multipart

from tests.apps.bodies import EVERY_BYTE, ODD
from tests.helpers import FIELD, HEADER, REPLAYED, Ledger, tokens_of
from tests.live import HOST
from tests.servers import RedisServer
from tests.webservers import WebServer, gunicorn_argv

MEGABYTE = 1024 * 1024
SECONDS = 20.0  # a socket that says nothing for so long is a failure


class Site:
    def __init__(self, server: WebServer, ledger: Ledger) -> None:
        self.server, self.ledger, self.seen = server, ledger, len(ledger)

    @property
    def effects(self) -> int:
        """Since the test began."""
        return len(self.ledger) - self.seen


@pytest.fixture(scope="module")
def served(svc_valkey: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("bodies")
    argv = gunicorn_argv("tests.apps.bodies:create_app()", workers=1, threads=4, worker_class="gthread", preload=False)
    env = {"STORE": svc_valkey.url, "LEDGER": str(folder / "ledger")}
    server = WebServer("gunicorn", argv, folder, env).start()
    yield Site(server, Ledger(folder / "ledger"))
    server.stop()


@pytest.fixture
def site(served: Site) -> Site:
    return Site(served.server, served.ledger)


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def replayed(self) -> bool:
        return self.headers.get(REPLAYED) == "true"


@pytest.fixture
def connection(site: Site) -> Iterator[http.client.HTTPConnection]:
    made = http.client.HTTPConnection(HOST, site.server.port, timeout=SECONDS)
    yield made
    made.close()


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    """A body that is no bytes but pieces goes out chunked."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named, encode_chunked=not isinstance(body, bytes | None))
    return Answer(connection.getresponse())


def token(connection: http.client.HTTPConnection) -> str:
    (found,) = tokens_of(ask(connection, "GET", "/form").body.decode())
    return found


def named(door: str, connection: http.client.HTTPConnection) -> dict[str, str]:
    """The header that names one submission: a token, or a key of the client's own."""
    return {HEADER: token(connection)} if door == "token" else {"Idempotency-Key": secrets.token_hex()}


def pieces(body: bytes, size: int = 50_000) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


def multipart(fields: dict[str, Any]) -> tuple[bytes, str]:
    boundary, body = encode_multipart(fields, boundary="fixed-boundary")
    return body, f"multipart/form-data; boundary={boundary}"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# -- uploads -------------------------------------------------------------------------------------------------------


@pytest.mark.case("BODY-01", "S3")
def test_thirty_megabytes_stream_through_to_the_view(site: Site, connection: http.client.HTTPConnection) -> None:
    body, kind = multipart({"upload": FileStorage(io.BytesIO(EVERY_BYTE * 4 * 30 * 1024), "large.bin")})
    header = {HEADER: token(connection)}

    def send(path: str, data: bytes, **headers: str) -> Any:
        answer = ask(connection, "POST", path, data, Content_Type=kind, **headers)
        return answer.status, json.loads(answer.body)

    _, small = send("/bare-raw", b"small")
    for path, headers in (("/raw", header), ("/bare-raw", {})):
        status, large = send(path, body, **headers)
        assert status == 200
        assert (large["length"], large["sha256"]) == (len(body), sha256(body))
        assert large["peak"] - small["peak"] < 10 * MEGABYTE

    status, refusal = send("/raw", b"small", **header)
    assert (status, refusal["code"]) == (422, "token_reused")
    assert site.effects == 3


@pytest.mark.case("BODY-01", "BODY-07")
@pytest.mark.parametrize("size", [200_000, 8 * MEGABYTE])
def test_a_duplicate_that_uploads_all_of_it_again_sees_its_answer(
    site: Site, connection: http.client.HTTPConnection, size: int
) -> None:
    body = EVERY_BYTE * (size // 256)
    sent = {"Content_Type": "application/octet-stream", HEADER: token(connection)}

    first = ask(connection, "POST", "/raw", body, **sent)
    again = ask(connection, "POST", "/raw", body, **sent)

    assert (first.status, first.replayed) == (200, False)
    assert (again.status, again.replayed, again.body) == (200, True, first.body)
    assert ask(connection, "GET", "/form").status == 200  # the same connection goes on
    assert site.effects == 1


@pytest.mark.case("BODY-02", "WIRE-03")
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_length_that_was_announced_for_a_body_that_never_comes_does_not_hang(
    site: Site, connection: http.client.HTTPConnection, method: str
) -> None:
    header = token(connection)
    head = f"{method} /form HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n{HEADER}: {header}\r\n"
    with socket.create_connection((HOST, site.server.port), SECONDS) as held_open:
        held_open.sendall(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\n".encode())
        assert held_open.recv(4096).startswith(b"HTTP/1.1 200 OK")

    first = ask(connection, "POST", "/form", b"", **{HEADER: header})
    again = ask(connection, "POST", "/form", b"", **{HEADER: header})
    assert (first.status, first.replayed, again.replayed) == (200, False, True)
    assert site.effects == 1


@pytest.mark.case("BODY-03")
def test_a_chunked_form_keeps_its_token_and_its_file(site: Site, connection: http.client.HTTPConnection) -> None:
    content = EVERY_BYTE * 4 * 1024
    for order in ("first", "last"):
        before = site.effects
        fields = {FIELD: token(connection), "upload": FileStorage(io.BytesIO(content), "a.bin")}
        body, kind = multipart(fields if order == "first" else dict(reversed(fields.items())))

        first = ask(connection, "POST", "/upload", pieces(body), Content_Type=kind)
        again = ask(connection, "POST", "/upload", pieces(body, 7777), Content_Type=kind)

        assert first.status == 200, first.body
        assert sha256(content).encode() in first.body
        assert (again.replayed, again.body) == (True, first.body)
        assert site.effects - before == 1


@pytest.mark.case("BODY-03")
def test_a_chunked_body_with_its_token_in_the_header(site: Site, connection: http.client.HTTPConnection) -> None:
    sent = {"Content_Type": "application/json", HEADER: token(connection)}

    first = ask(connection, "POST", "/json", pieces(b'{"a": [1, 2, 3]}', 3), **sent)
    again = ask(connection, "POST", "/json", pieces(b'{"a": [1, 2, 3]}', 5), **sent)

    assert first.body == b'{"got":{"a":[1,2,3]}}\n'
    assert (again.status, again.replayed, again.body) == (200, True, first.body)
    assert ask(connection, "GET", "/form").status == 200
    assert site.effects == 1


@pytest.mark.case("BODY-03", "BODY-06")
def test_a_chunked_form_without_a_token_is_a_missing_token(site: Site, connection: http.client.HTTPConnection) -> None:
    body, kind = multipart({"upload": FileStorage(io.BytesIO(EVERY_BYTE * 1000), "a.bin")})

    refused = ask(connection, "POST", "/upload", pieces(body), Content_Type=kind)

    assert refused.status == 400
    assert b"token_missing" in refused.body
    assert site.effects == 0


@pytest.mark.case("BODY-07", "S3")
@pytest.mark.parametrize("order", ["first", "last"])
def test_a_token_before_and_behind_a_file_of_twenty_megabytes(
    site: Site, connection: http.client.HTTPConnection, order: str
) -> None:
    content = EVERY_BYTE * 4 * 20 * 1024
    fields = {FIELD: token(connection), "upload": FileStorage(io.BytesIO(content), "large.bin")}
    body, kind = multipart(fields if order == "first" else dict(reversed(fields.items())))

    first = ask(connection, "POST", "/upload", body, Content_Type=kind)
    again = ask(connection, "POST", "/upload", body, Content_Type=kind)

    assert sha256(content).encode() in first.body
    assert (again.replayed, again.body) == (True, first.body)
    assert site.effects == 1


# -- answers -------------------------------------------------------------------------------------------------------


@pytest.mark.case("REPLAY-05")
@pytest.mark.parametrize("door", ["token", "key"])
@pytest.mark.parametrize("kind", ["path", "memory"])
def test_a_file_reaches_its_caller_is_closed_and_is_not_kept(
    site: Site, connection: http.client.HTTPConnection, kind: str, door: str
) -> None:
    header = named(door, connection)

    first = ask(connection, "POST", f"/file/{kind}", b"", **header)
    assert (first.status, first.body) == (200, EVERY_BYTE * 1000)
    for more in ({}, {"Range": "bytes=10-19"}, {"If_None_Match": first.headers.get("ETag", "*")}):
        again = ask(connection, "POST", f"/file/{kind}", b"", **header, **more)
        assert again.status == 409
        assert b"response_unavailable" in again.body

    assert b"answer.bin" not in ask(connection, "GET", "/open-files").body
    assert site.effects == 1


@pytest.mark.case("REPLAY-07")
@pytest.mark.parametrize("door", ["token", "key"])
@pytest.mark.parametrize("shape", ODD)
def test_odd_answers_come_back_with_the_right_length_on_a_connection_that_goes_on(
    site: Site, connection: http.client.HTTPConnection, shape: str, door: str
) -> None:
    body, status, kind = ODD[shape]
    path, header = f"/odd/{shape.replace(' ', '%20')}", named(door, connection)

    first = ask(connection, "POST", path, b"", **header)
    again = ask(connection, "POST", path, b"", **header)
    third = ask(connection, "POST", path, b"", **header)

    assert (first.status, first.body, first.replayed) == (status, body, False)
    for repeat in (again, third):
        assert (repeat.status, repeat.body, repeat.replayed) == (status, body, True)
        for name in ("Content-Type", "Content-Length", "Location"):
            assert repeat.headers.get(name) == first.headers.get(name), name
    if status not in (204, 304):
        assert again.headers["Content-Length"] == str(len(body))
        assert kind.split(";")[0] in again.headers["Content-Type"]
    if status == 204:
        assert "Content-Length" not in again.headers
    head = ask(connection, "HEAD", path)
    assert (head.status, head.body, head.replayed) == (status, b"", False)
    assert site.effects == 1
