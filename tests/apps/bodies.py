"""Views that read and answer bodies of every kind, behind a real web server. From the environment: STORE, LEDGER."""

from __future__ import annotations

import hashlib
import io
import os
import resource
from pathlib import Path
from typing import Any

import psutil
from flask import Flask, Response, render_template_string, request, send_file

from flask_idempotent import Idempotency, idempotent
from tests.apps import off_switch
from tests.helpers import Ledger

EVERY_BYTE = bytes(range(256))
ODD: dict[str, tuple[bytes, int, str]] = {
    "204": (b"", 204, "text/plain"),
    "205": (b"", 205, "text/plain"),
    "304": (b"", 304, "text/plain"),
    "201 empty": (b"", 201, "text/plain"),
    "accents": ("Grüße".encode("latin-1"), 200, "text/plain; charset=iso-8859-1"),
    "JSON with a charset": ('{"ü": 1}'.encode(), 200, "application/json; charset=utf-8"),
    "every byte": (EVERY_BYTE, 200, "image/png"),
    "redirect": (b"", 303, "text/html"),
}


FILE = "answer.bin"


def create_app() -> Flask:
    app = off_switch(Flask(__name__))
    Idempotency(app, store=os.environ["STORE"])
    guard = idempotent(source=("token", "header"))
    folder().joinpath(FILE).write_bytes(EVERY_BYTE * 1000)
    for path, view in {"/raw": raw, "/upload": upload, "/json": read_json, "/file/<kind>": answer_file}.items():
        app.add_url_rule(path, view.__name__, guard(view), methods=["POST"])
    for path, view in {"/form": form, "/odd/<shape>": odd}.items():
        app.add_url_rule(path, view.__name__, guard(view), methods=["GET", "POST"])
    app.add_url_rule("/bare-raw", "bare_raw", raw, methods=["POST"])
    app.add_url_rule("/open-files", "open_files", lambda: [opened.path for opened in psutil.Process().open_files()])
    return app


def folder() -> Path:
    return Path(os.environ["LEDGER"]).parent


def book(effect: str) -> None:
    if request.method == "POST":
        Ledger(os.environ["LEDGER"]).add(effect)


def form() -> str:
    book("form")
    return render_template_string("<form>{{ idempotency_token() }}</form>")


def raw() -> dict[str, Any]:
    book("raw")
    total, length = hashlib.sha256(), 0
    while chunk := request.stream.read(65_536):
        total.update(chunk)
        length += len(chunk)
    return {"sha256": total.hexdigest(), "length": length, "peak": peak()}


def upload() -> dict[str, Any]:
    book("upload")
    files = {name: hashlib.sha256(part.read()).hexdigest() for name, part in request.files.items()}
    return {"files": files, "fields": sorted(request.form)}


def read_json() -> dict[str, Any]:
    book("json")
    return {"got": request.get_json()}


def answer_file(kind: str) -> Response:
    book("file")
    if kind == "path":
        return send_file(folder() / FILE, conditional=True)
    return send_file(io.BytesIO(EVERY_BYTE * 1000), mimetype="image/png", conditional=True)


def odd(shape: str) -> Response:
    book("odd")
    body, status, kind = ODD[shape]
    response = Response(body, status, content_type=kind)
    if status == 303:
        response.headers["Location"] = "/done"
    return response


def peak() -> int:
    """The most memory that the process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
