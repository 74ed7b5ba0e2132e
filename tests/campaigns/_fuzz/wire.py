"""Requests as bytes on a socket: no client library mends what is wrong with them."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from dataclasses import dataclass
from typing import Any

from tests.campaigns._fuzz.plans import TOKEN, Plan
from tests.live import HOST

PATIENCE = 10.0  # seconds that an answer may take


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def problem(self) -> dict[str, Any] | None:
        """The problem details, if it is a refusal of ours."""
        if self.headers.get_content_type() != "application/problem+json":
            return None
        found = json.loads(self.body)
        return found if isinstance(found, dict) else None


def written(plan: Plan, token: bytes) -> bytes:
    """The bytes of a plan, its token put in."""
    body = plan.body.replace(TOKEN, token)
    headers = [(name, value.replace(TOKEN, token)) for name, value in plan.headers]
    match plan.framing:
        case "chunked":
            headers.append((b"Transfer-Encoding", b"chunked"))
            pieces = [body[at : at + 700] for at in range(0, len(body), 700)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        case framing:
            length = len(body) + {"length": 0, "short": -min(3, len(body)), "long": 5}[framing]
            headers.append((b"Content-Length", b"%d" % length))
    lines = [b"%s: %s\r\n" % header for header in headers]
    target = plan.target.replace(TOKEN, token)
    start = b"%s %s HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n" % (plan.method.encode(), target)
    return start + b"".join(lines) + b"\r\n" + body


def send(port: int, sent: bytes, method: str) -> Answer | None:
    """Send it on a connection of its own; None if the server closed that without an answer.

    :raises TimeoutError: nothing came.
    """
    with socket.create_connection((HOST, port), PATIENCE) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it answered before it had read all
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        response = http.client.HTTPResponse(connection, method=method)
        try:
            response.begin()
            return Answer(response.status, response.headers, response.read())
        except (http.client.BadStatusLine, http.client.IncompleteRead, ConnectionResetError):
            return None
        finally:
            response.close()
