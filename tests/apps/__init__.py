"""Small apps that the tests serve, in the test's own process or behind a real web server."""

from __future__ import annotations

import os

from flask import Flask

OFF = "IDEMPOTENCY_TESTS_OFF"


def switched_off() -> bool:
    """Whether this run shows what happens without the product (./dev cases)."""
    return os.environ.get(OFF) == "1"


def off_switch(app: Flask) -> Flask:
    """Every app under tests/apps calls this before ``init_app``, so that ./dev cases can run it unprotected."""
    if switched_off():
        app.config["IDEMPOTENCY_ENABLED"] = False
    return app
