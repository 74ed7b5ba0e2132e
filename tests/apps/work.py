"""One guarded view at work behind a real web server. From the environment: STORE (a URL; may be absent), LEDGER (a
file), SETTINGS (JSON of ``IDEMPOTENCY_*`` keys without their prefix), RELEASE (a file: what waits goes on when it is
there), FAIL (a file: the view takes it away and fails)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from flask import Flask, render_template_string, request

from flask_idempotent import Idempotency, idempotent
from tests.apps import off_switch, switched_off
from tests.helpers import Ledger

LONGEST = 0.5 if switched_off() else 20.0  # seconds that the view waits to be released


def create_app() -> Flask:
    app = off_switch(Flask(__name__))
    settings = json.loads(os.environ.get("SETTINGS", "{}"))
    app.config.update({f"IDEMPOTENCY_{key}": value for key, value in settings.items()})
    Idempotency(app, store=os.environ.get("STORE"))
    ledger = Ledger(os.environ["LEDGER"])

    @app.get("/form")
    def form() -> str:
        return render_template_string("{% for _ in range(n) %}{{ idempotency_token() }}{% endfor %}", n=count())

    @app.get("/health")
    def health() -> str:
        return "well"

    @app.post("/bare")
    def bare() -> str:
        return "bare"

    def work() -> Any:
        name = request.form.get("name", "")
        ledger.add(f"start {name} {os.getpid()}")
        wait()
        if took_away(os.environ.get("FAIL")):
            raise RuntimeError("the view fails")
        ledger.add(f"done {name} {os.getpid()}")
        return {"done": name, "by": os.getpid()}, 201

    for policy in ("replay", "reject", "ignore"):
        guarded = idempotent(on_duplicate=policy, scene=policy)(work)
        app.add_url_rule(f"/work/{policy}", policy, guarded, methods=["POST"])
    app.add_url_rule("/work/consume", "consume", idempotent(consume=True)(work), methods=["POST"])
    app.add_url_rule("/work", "work", idempotent(work), methods=["POST"])
    return app


def count() -> int:
    return int(request.args.get("n", 1))


def wait() -> None:
    """As long as the request says, or until it is released."""
    if "seconds" in request.form:
        time.sleep(float(request.form["seconds"]))
    if "wait" in request.form:
        release, end = Path(os.environ["RELEASE"]), time.monotonic() + LONGEST
        while not release.exists() and time.monotonic() < end:
            time.sleep(0.005)


def took_away(name: str | None) -> bool:
    try:
        Path(name or "/nonexistent").unlink()
    except OSError:
        return False
    return True
