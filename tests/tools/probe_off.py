"""Not collected by itself: test_off.py runs it with the product switched off, and on."""

from __future__ import annotations

import os

import requests
from flask import Flask

from flask_idempotent import Idempotency

WANTED = os.environ.get("PROBE_ENABLED") == "1"


def test_an_app_in_this_process():
    app = Flask(__name__)
    app.config["IDEMPOTENCY_ENABLED"] = True
    Idempotency().init_app(app)
    assert app.config["IDEMPOTENCY_ENABLED"] is WANTED


def test_a_served_app(gunicorn):
    served = gunicorn("tests.apps.hello:create_app()")
    assert requests.get(served.url, timeout=5).json()["enabled"] is WANTED
