"""What views answer, in every shape that Flask allows, and what may happen to a record of it."""

from __future__ import annotations

import gzip
import io
import logging
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import (
    Response,
    abort,
    jsonify,
    redirect,
    render_template_string,
    send_file,
    stream_with_context,
)
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as WerkzeugResponse

from flask_idempotent import idempotent
from tests.helpers import Ledger, assert_refused, make_app
from tests.servers import RedisServer

EVERY_BYTE = bytes(range(256))


def made(*args: Any, **options: Any) -> Callable[[], Any]:
    return lambda: Response(*args, **options)


def raising(error: Callable[[], Any]) -> Callable[[], Any]:
    def call() -> Any:
        raise error()

    return call


KEPT: dict[str, Callable[[], Any]] = {
    "str": lambda: "text",
    "empty str": lambda: "",
    "bytes": lambda: b"\x00bytes\xff",
    "bytearray": lambda: bytearray(b"\x01\x02"),
    "dict": lambda: {"a": [1, None], "ü": "ß"},
    "list": lambda: [1, "two", {"three": 3}],
    "(x, status)": lambda: ("created", 201),
    "(x, status line)": lambda: ("teapot", "299 Some Success"),
    "(x, headers)": lambda: ("text", {"X-A": "1", "Content-Type": "text/plain"}),
    "(x, header pairs)": lambda: ("text", [("X-A", "1"), ("X-A", "2")]),
    "(x, status, headers)": lambda: ({"id": 1}, 202, {"Location": "/1"}),
    "Response": made("<b>", 203, mimetype="text/markdown"),
    "(Response, status)": lambda: (Response("inner", 200), 201),
    "Response of a list": made([b"one", b"two"]),
    "jsonify": lambda: jsonify(a=1, b=[2]),
    "redirect": lambda: redirect("/done"),
    "redirect 303": lambda: redirect("/done?x=%C3%BC", 303),
    "aborted redirect": lambda: abort(redirect("/aborted")),
    "aborted response": lambda: abort(Response("aborted", 200)),
    "raised HTTPException": raising(lambda: HTTPException(response=Response("raised", 201))),
    "page": lambda: render_template_string("<p>{{ x }}</p>", x="<&>"),
    "all bytes as PNG": made(EVERY_BYTE, mimetype="image/png"),
    "no UTF-8 called JSON": made(b'{"a": "\xff\xfe"}', mimetype="application/json"),
    "ISO-8859-1": made("Grüße".encode("latin-1"), content_type="text/plain; charset=iso-8859-1"),
    "JSON with a charset": made('{"ü": 1}'.encode(), content_type="application/json; charset=utf-8"),
    "no content type": made(b"x", headers={"Content-Type": ""}),
    "werkzeug Response": lambda: WerkzeugResponse("theirs", 201, {"X-A": "1"}),
    "(werkzeug Response, status)": lambda: (WerkzeugResponse("theirs"), 202),
    "gzip by the view": made(gzip.compress(b"packed"), headers={"Content-Encoding": "gzip"}),
    "IRI as Location": lambda: redirect("/bestellung/grün?x=ü"),
    "header beyond ASCII": made("x", headers={"X-Name": "Grün"}),
    "204": lambda: ("", 204),
    "205": lambda: ("", 205),
    "304": lambda: ("", 304),
    "201 empty": lambda: ("", 201),
}


def a_file(kind: str, folder: Path) -> Callable[[], Any]:
    path = folder / "answer.bin"
    path.write_bytes(EVERY_BYTE)
    if kind == "path":
        return lambda: send_file(path, conditional=True)
    return lambda: send_file(io.BytesIO(EVERY_BYTE), mimetype="image/png", conditional=True)


def wsgi_callable(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"from wsgi"]


def numbers() -> Any:
    yield from (b"1", b"2", b"3")


STREAMED: dict[str, tuple[Callable[[], Any], bytes]] = {
    "generator": (numbers, b"123"),
    "Response of a generator": (lambda: Response(numbers()), b"123"),
    "stream_with_context": (lambda: Response(stream_with_context(numbers())), b"123"),
    "WSGI callable": (lambda: wsgi_callable, b"from wsgi"),
    "direct passthrough": (lambda: Response(numbers(), direct_passthrough=True), b"123"),
}


# -- a view that is guarded by keys --------------------------------------------------------------------------------


def answering_by_key(
    make: Callable[[], Any], store: Any = None, *, options: Any = None, **config: Any
) -> tuple[Any, Ledger]:
    """A client of an app whose one view, guarded by keys, answers what ``make`` returns; and the view's ledger."""
    app, ledger = make_app(store, **config), Ledger()

    @app.post("/work")
    @idempotent(**(options or {"source": "header"}))
    def work() -> Any:
        ledger.add()
        return make()

    return app.test_client(), ledger


def send_with_key(client: Any, **options: Any) -> Any:
    """One operation, whose key is in two headers and in the form."""
    headers = {"Idempotency-Key": '"a-key"', "X-Request-Id": "a-key", **options.pop("headers", {})}
    return client.post("/work", data={"order_no": "7", "shop": "s"}, headers=headers, **options)


# -- damage --------------------------------------------------------------------------------------------------------

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda value: b"",
    "one byte": lambda value: b"\x01",
    "random bytes": lambda value: zlib.compress(b"whatever" * 9),
    "text": lambda value: b"None",
    "half of itself": lambda value: value[: len(value) // 2],
    "one byte less": lambda value: value[:-1],
    "one byte more": lambda value: value + b"x",
    "another version": lambda value: bytes([value[0] ^ 0x7F]) + value[1:],
    "JSON": lambda value: b'{"state": "done", "result": null}',
    "zeroes": lambda value: bytes(len(value)),
}


def damage_the_record(server: RedisServer, damage: Callable[[bytes], bytes]) -> None:
    (key,) = server.control.keys()
    server.control.set(key, damage(server.control.get(key)), keepttl=True)


def assert_refused_as_damaged(response: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert_refused(response, "record_invalid")
    assert "record_invalid" in [r.getMessage().split()[0] for r in caplog.records if r.levelno == logging.ERROR]
