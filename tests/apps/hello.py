"""The smallest app, for the tests of the servers themselves."""

from __future__ import annotations

import os

from flask import Flask


def create_app() -> Flask:
    app = Flask(__name__)

    @app.get("/")
    def hello() -> dict[str, object]:
        return {"pid": os.getpid(), "greeting": os.environ.get("HELLO", "hello")}

    return app
