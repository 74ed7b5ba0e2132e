"""The smallest app, for the tests of the servers themselves."""

from __future__ import annotations

import os

from flask import Flask

from tests.apps import off_switch


def create_app() -> Flask:
    app = off_switch(Flask(__name__))

    @app.get("/")
    def hello() -> dict[str, object]:
        enabled = app.config.get("IDEMPOTENCY_ENABLED", True)
        return {"pid": os.getpid(), "greeting": os.environ.get("HELLO", "hello"), "enabled": enabled}

    return app
