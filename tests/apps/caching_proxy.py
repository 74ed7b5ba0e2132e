"""A small shared cache in front of a server, obedient to Cache-Control and to nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import requests
from flask import Flask, Response, request
from werkzeug.serving import make_server

from tests.live import HOST

_FORBIDDEN = {"private", "no-store", "no-cache"}


def create_app(upstream: str) -> Flask:
    """Pass everything on to `upstream`; keep what it does not forbid to be shared."""
    app = Flask(__name__)
    kept: dict[str, requests.Response] = {}

    @app.route("/<path:path>", methods=["GET", "POST"])
    def pass_on(path: str) -> Response:
        if request.method == "GET" and path in kept:
            return _answer(kept[path], "hit")
        answer = requests.request(
            request.method,
            f"{upstream}/{path}",
            data=request.get_data(),
            headers={name: value for name, value in request.headers if name in ("Content-Type", "Accept")},
            timeout=10,
        )
        directives = {word.strip().partition("=")[0] for word in answer.headers.get("Cache-Control", "").split(",")}
        if request.method == "GET" and answer.status_code == 200 and not directives & _FORBIDDEN:
            kept[path] = answer
        return _answer(answer, "miss")

    return app


def _answer(answer: requests.Response, cache: str) -> Response:
    response = Response(answer.content, answer.status_code, content_type=answer.headers["Content-Type"])
    response.headers["Cache-Control"] = answer.headers.get("Cache-Control", "")
    response.headers["X-Cache"] = cache
    return response


@contextmanager
def caching_proxy(upstream: str) -> Iterator[str]:
    """Serve the cache in a thread; yields its URL."""
    server = make_server(HOST, 0, create_app(upstream), threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
