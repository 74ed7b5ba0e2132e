"""Forms behind a real web server. From the environment: STORE (a URL), LEDGER (a file), RELEASE (a file: the slow view
goes on when it is there)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from flask import Flask, render_template_string, request

from flask_idempotent import Idempotency, idempotent
from tests.apps import off_switch
from tests.helpers import Ledger

LONGEST = 20.0  # seconds that the slow view waits to be released
FORM = "<form method=post>{{ idempotency_token() }}</form>"


def create_app() -> Flask:
    app = off_switch(Flask(__name__))
    app.config["IDEMPOTENCY_STORE"] = os.environ["STORE"]
    Idempotency(app)
    ledger = Ledger(os.environ["LEDGER"])
    release = Path(os.environ.get("RELEASE", os.devnull))

    @app.get("/form")
    def form() -> str:
        return render_template_string(FORM)

    @app.get("/form/strict")
    def strict() -> tuple[str, dict[str, str]]:
        return render_template_string(FORM), {"Cache-Control": "no-store"}

    @app.get("/plain")
    def plain() -> tuple[str, dict[str, str]]:
        return f"<p>served {ledger.add('plain')} times", {"Cache-Control": "public, max-age=60"}

    def order() -> tuple[dict[str, object], int]:
        ledger.add(request.form["item"])
        return {"ordered": request.form["item"]}, 201

    def slow() -> tuple[dict[str, object], int]:
        ledger.add(request.form["item"])
        end = time.monotonic() + LONGEST
        while not release.exists() and time.monotonic() < end:
            time.sleep(0.005)
        return {"ordered": request.form["item"]}, 201

    for policy in ("replay", "reject", "ignore"):
        guarded = idempotent(on_duplicate=policy)
        app.add_url_rule(f"/order/{policy}", f"order_{policy}", guarded(order), methods=["POST"])
        app.add_url_rule(f"/slow/{policy}", f"slow_{policy}", guarded(slow), methods=["POST"])
    return app
