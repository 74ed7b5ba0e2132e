"""An app whose hook looks into every body before the view does, and whose view says what both of them found."""

from __future__ import annotations

import hashlib
from typing import Any

from flask import Flask, Response, g, request

from flask_idempotent.web.content import Content
from flask_idempotent.web.unread import drain

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b"
JSON = "application/json"
MAX_BODY = 64 * 1024


def multipart(*parts: tuple[str, bytes], boundary: str = "b") -> bytes:
    """Parts as (what follows ``form-data; ``, content)."""
    lines = [f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + body for head, body in parts]
    return b"\r\n".join([*lines, f"--{boundary}--\r\n".encode()])


def create_app() -> Flask:
    app = Flask(__name__)

    @app.before_request
    def look() -> Response | None:
        if "refuse" in request.args:  # what a refusal does that never looked into the body
            whole = drain(request, limit=1024 * 1024)
            return Response("refused", 409, {} if whole else {"Connection": "close"})
        if request.method == "GET":
            return None
        content = Content(request, MAX_BODY)
        g.found = {
            "readable": content.readable,
            "values": content.values("token"),
            "json": content.json_value("token"),
            "fingerprint": content.fingerprint(token_fields=["token"]),
            "unparsable": content.unparsable,
        }
        return None

    @app.route("/form", methods=["GET", "POST"])
    def form() -> dict[str, Any]:
        files = {name: _digest(file.read()) for name, file in request.files.items()}
        return {"hook": g.found, "form": request.form.to_dict(flat=False), "files": files}

    @app.post("/raw")
    def raw() -> dict[str, Any]:
        return {"hook": g.found, "raw": _digest(request.stream.read())}

    @app.post("/json")
    def as_json() -> dict[str, Any]:
        return {"hook": g.found, "json": request.get_json()}

    return app


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
