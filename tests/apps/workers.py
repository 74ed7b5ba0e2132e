"""A guarded view behind every kind of server. From the environment: STORE (a URL), LEDGER (a file; the gates lie beside
it), SETTINGS (JSON of ``IDEMPOTENCY_*`` keys without their prefix), USED_AT_IMPORT (the store is used and the heartbeat
beats before any worker is forked off)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from flask import Flask, render_template_string, request

from flask_idempotent import Idempotency, idempotent
from flask_idempotent.core.heartbeat import heartbeat
from flask_idempotent.core.hold import Terms
from tests.apps import off_switch, switched_off
from tests.helpers import Ledger

LONGEST = 0.5 if switched_off() else 30.0  # seconds that a view waits for its gate


def create_app() -> Flask:
    app = off_switch(Flask(__name__))
    settings = json.loads(os.environ.get("SETTINGS", "{}"))
    app.config.update({f"IDEMPOTENCY_{key}": value for key, value in settings.items()})
    idempotency = Idempotency(app, store=os.environ["STORE"])
    ledger = Ledger(os.environ["LEDGER"])

    @app.get("/form")
    def form() -> str:
        return render_template_string("<form method=post>{{ idempotency_token() }}</form>")

    @app.get("/page")
    def page() -> str:
        return render_template_string("{% set helper = idempotency_token %}no form here")

    @app.post("/work")
    @idempotent
    def work() -> Any:
        """Fields ``name`` and ``outcome``. The header X-Gate, no part of the content, names a file to wait for."""
        name = request.form["name"]
        ledger.add(f"start {name} {os.getpid()}")
        pass_gate(request.headers.get("X-Gate"))
        if request.form.get("outcome") == "raises":
            raise RuntimeError("the view fails")
        ledger.add(f"done {name} {os.getpid()}")
        return {"name": name, "by": os.getpid()}, 201

    @app.post("/unread")
    @idempotent
    def unread() -> tuple[str, int]:
        ledger.add("unread")
        return "done without a look at the body", 201

    if "USED_AT_IMPORT" in os.environ:
        with app.app_context():
            use(idempotency)
    return app


def pass_gate(name: str | None) -> None:
    if name is None:
        return
    gate, end = Path(os.environ["LEDGER"]).parent / name, time.monotonic() + LONGEST
    while not gate.exists() and time.monotonic() < end:
        time.sleep(0.005)


def use(idempotency: Idempotency) -> None:
    """A connection of the pool is open and the heartbeat's thread runs when the workers are forked off."""
    guard = idempotency.guard
    with heartbeat.watch(guard.claim(Terms(f"at import {os.getpid()}", token=False, lease=60, life=60, ttl=60))):
        guard.get("at import")
