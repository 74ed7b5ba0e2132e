"""Views guarded by a client's key, behind a real web server. The key is in ``Idempotency-Key`` or in the field ``key``.
From the environment: STORE (a URL), LEDGER (a file; the gates lie beside it), SETTINGS (JSON of ``IDEMPOTENCY_*`` keys
without their prefix)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flask import Flask, Response, request

from flask_idempotent import Idempotency, idempotent
from tests.apps import off_switch, switched_off
from tests.helpers import Ledger

LONGEST = 0.5 if switched_off() else 30.0  # seconds that a view waits for its gate
LIMIT = 20.0  # seconds for which the views wait that wait long
SHORT = 1.0
VIEWS: dict[str, dict[str, Any]] = {
    "replay": {},
    "reject": {"on_duplicate": "reject"},
    "wait": {"wait": LIMIT},
    "wait-shortly": {"wait": SHORT},
    "strict": {"restore_on_error": False},
    "lock": {"lock": "form.entity"},
    "lock-wait": {"lock": "form.entity", "wait": LIMIT},
}


def create_app() -> Flask:
    app = off_switch(Flask(__name__))
    settings = json.loads(os.environ.get("SETTINGS", "{}"))
    app.config.update({f"IDEMPOTENCY_{key}": value for key, value in settings.items()})
    Idempotency(app, store=os.environ["STORE"])
    ledger = Ledger(os.environ["LEDGER"])

    @app.get("/health")
    def health() -> str:
        return "well"

    def work() -> Any:
        """Fields ``entity``, ``name``, ``seconds``. The header X-Gate, no part of the content, names a file to wait
        for, X-Fails one that the view takes away and fails."""
        whose = f"{request.form.get('entity', '-')} {request.form['name']} {os.getpid()}"
        ledger.add(f"begin {whose}")
        time.sleep(float(request.form.get("seconds", 0)))
        pass_gate(request.headers.get("X-Gate"))
        ledger.add(f"end {whose}")
        if "X-Fails" in request.headers:
            raise RuntimeError("the view fails")
        return {"name": request.form["name"], "by": os.getpid(), "at": time.time_ns()}, 201

    @app.post("/stream")
    @idempotent(source="header")
    def stream() -> Response:
        ledger.add(f"begin - {request.form['name']} {os.getpid()}")
        return Response(chunks(), 201)

    for name, options in VIEWS.items():
        guarded = idempotent(source=("header", "param"), name="key", **options)(work)
        app.add_url_rule(f"/{name}", name, guarded, methods=["POST"])
    return app


def chunks() -> Iterator[str]:
    for number in range(5):
        if number == 2:
            raise RuntimeError("the disk is gone")
        yield f"chunk {number}, "


def pass_gate(name: str | None) -> None:
    if name is None:
        return
    gate, end = Path(os.environ["LEDGER"]).parent / name, time.monotonic() + LONGEST
    while not gate.exists() and time.monotonic() < end:
        time.sleep(0.005)
