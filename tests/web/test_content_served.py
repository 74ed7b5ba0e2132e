"""Bodies over real sockets: chunked, large, unread, broken off. Every server has a stream of its own kind."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.apps.reader import JSON, MAX_BODY, MULTIPART, URLENCODED, multipart
from tests.live import HOST

SECONDS = 10
FILE = bytes(range(256)) * 1000  # 256 kB: more than MAX_BODY


@pytest.fixture(params=["gunicorn", "waitress", "flask_run"])
def server(request: pytest.FixtureRequest) -> Any:
    start: Callable[..., Any] = request.getfixturevalue(request.param)
    return start("tests.apps.reader:create_app()")


@pytest.fixture
def connection(server: Any) -> Iterator[http.client.HTTPConnection]:
    client = http.client.HTTPConnection(HOST, server.port, timeout=SECONDS)
    yield client
    client.close()


def send(connection: http.client.HTTPConnection, path: str, body: Any, kind: str) -> dict[str, Any]:
    """POST; a body that is no bytes but pieces goes out chunked."""
    connection.request("POST", path, body, {"Content-Type": kind}, encode_chunked=not isinstance(body, bytes))
    response = connection.getresponse()
    assert response.status == 200, response.read()
    found: dict[str, Any] = json.load(response)
    return found


def pieces(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 5000):
        yield body[start : start + 5000]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_small_bodies_of_every_kind_one_after_the_other(connection: http.client.HTTPConnection) -> None:
    form = send(connection, "/form", b"token=t1&a=1", URLENCODED)
    assert form["hook"]["values"] == form["form"]["token"] == ["t1"]
    assert form["form"]["a"] == ["1"]
    raw = send(connection, "/raw", b"token=t1&a=1", URLENCODED)
    assert (raw["hook"]["values"], raw["raw"]) == (["t1"], sha256(b"token=t1&a=1"))
    data = send(connection, "/json", b'{"token":"t1"}', JSON)
    assert (data["hook"]["json"], data["json"]) == ("t1", {"token": "t1"})
    again = send(connection, "/json", b'{ "token": "t2" }', JSON)
    assert again["hook"]["fingerprint"] == data["hook"]["fingerprint"]


def test_a_token_beside_a_large_file(connection: http.client.HTTPConnection) -> None:
    token, file = ('name="token"', b"t1"), ('name="f"; filename="f"', FILE)
    for body in (multipart(token, file), multipart(file, token)):
        assert len(body) > MAX_BODY
        for sent in (body, pieces(body)):
            found = send(connection, "/form", sent, MULTIPART)
            assert found["hook"]["values"] == ["t1"]
            assert not found["hook"]["readable"]
            assert found["files"] == {"f": sha256(FILE)}
    chunked = send(connection, "/json", pieces(b'{"token":"t1"}'), JSON)
    assert (chunked["hook"]["json"], chunked["json"]) == ("t1", {"token": "t1"})


def test_refusals_and_broken_bodies(server: Any, connection: http.client.HTTPConnection) -> None:
    for sent in (b"x" * 900_000, pieces(b"x" * 900_000)):
        assert refused(connection, sent)  # the client sees it though nobody read the body
        assert send(connection, "/json", b'{"a":1}', JSON)["json"] == {"a": 1}  # and the connection is in order

    length = f"HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {URLENCODED}\r\nContent-Length: 20\r\n\r\n"
    status = status_line(server, f"POST /form {length}token=t1&a=")  # and hangs up: no view ran
    if server.process.name == "waitress":  # hands no half body to an app
        assert status == ""
        assert refused(connection, b"x" * 3_000_000)  # beyond drain()'s limit, yet nothing is left on the wire
    else:
        assert " 400 " in status
        assert " 409 " in status_line(server, f"GET /form?refuse {length}", hang_up=False)  # nothing is waited for


def refused(connection: http.client.HTTPConnection, body: Any) -> bool:
    headers = {"Content-Type": "text/plain"}
    connection.request("POST", "/form?refuse", body, headers, encode_chunked=not isinstance(body, bytes))
    response = connection.getresponse()
    return (response.status, response.read()) == (409, b"refused")


def status_line(server: Any, request: str, *, hang_up: bool = True) -> str:
    """Say this and return the first line of the answer; empty if there is none."""
    with socket.create_connection((HOST, server.port), timeout=SECONDS) as client:
        client.sendall(request.encode())
        if hang_up:
            client.shutdown(socket.SHUT_WR)
        return client.recv(65536).decode("latin-1").partition("\r\n")[0]
