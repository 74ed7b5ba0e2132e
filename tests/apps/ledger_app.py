"""Guarded views that do as each request tells them and book every step. From the environment: STORE (a URL), LEDGER
(a file), LEASE and LIFE (seconds), SABOTAGE (one of SABOTAGES; the product is then broken on purpose)."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from flask import Flask, g, has_request_context, redirect, request

from flask_idempotent import Idempotency, current_claim, idempotent, signals
from flask_idempotent.core.heartbeat import heartbeat
from flask_idempotent.core.keys import parse_token, token_digest
from flask_idempotent.stores.redis import store as redis_store
from tests.apps import off_switch
from tests.helpers import FIELD

VIEWS: dict[str, dict[str, Any]] = {
    "replay": {},
    "reject": {"on_duplicate": "reject"},
    "strict": {"restore_on_error": False},
    "consume": {"consume": True},
}
SABOTAGES = ("claims-what-is-held", "no-heartbeat")
BEAT, STALL = 0.1, 0.35  # seconds between two looks at the clock; a longer gap than the second is booked


class Book:
    """One file for all processes. Each line is one write in append mode, so that lines do not mix and a killed process
    loses none."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, **more: object) -> None:
        line = {"t": time.monotonic(), "pid": os.getpid(), "what": what, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Run:
    """One execution of a view, as the ledger sees it."""

    def __init__(self, book: Book) -> None:
        self.attempt = request.headers["X-Attempt"]
        self.plan: dict[str, Any] = json.loads(request.headers["X-Plan"])
        self._book = book
        self._token = token_digest(parse_token(request.form[FIELD]) or "")

    def mark(self, what: str, **more: object) -> None:
        self._book.write(what, token=self._token, attempt=self.attempt, **more)

    def ends(self, outcome: str) -> None:
        self.mark("end", outcome=outcome)

    def do(self) -> Any:
        """``before`` and ``after``: seconds around the effect. ``ends``: how it ends. ``keep``: whether it says so."""
        plan, outcome = self.plan, self.plan["ends"]
        self.mark("begin", fence=current_claim.fence)
        time.sleep(plan["before"])
        if outcome in ("refuses", "again"):
            return self._without_effect(outcome)
        if outcome == "raises-early":
            self.ends("raises")
            raise RuntimeError("the view fails before its effect")
        self.mark("effect")
        if plan["keep"]:
            current_claim.keep()
            self.mark("kept")
        time.sleep(plan["after"])
        self.ends(outcome)
        if outcome == "raises":
            raise RuntimeError("the view fails after its effect")
        if outcome == "redirects":
            return redirect(f"/done/{self.attempt}", 303)
        return ({"run": self.attempt}, 201) if outcome == "returns" else ({"own": self.attempt}, 500)

    def _without_effect(self, outcome: str) -> Any:
        self.ends(outcome)
        if outcome == "refuses":
            return {"own": self.attempt}, 400
        current_claim.restore()
        return {"again": self.attempt}, 200


def create_app() -> Flask:
    sabotage(os.environ.get("SABOTAGE", ""))
    app = off_switch(Flask(__name__))
    app.config.update(
        IDEMPOTENCY_STORE=os.environ["STORE"],
        IDEMPOTENCY_LEASE=float(os.environ["LEASE"]),
        IDEMPOTENCY_TOKEN_TTL=float(os.environ["LIFE"]),
    )
    idempotency = Idempotency(app)
    book = Book(os.environ["LEDGER"])
    listen(app, book)
    # The app is made before its workers are forked off, and threads do not survive that.
    os.register_at_fork(
        after_in_child=lambda: threading.Thread(target=watch_the_clock, args=(book,), daemon=True).start()
    )

    @app.get("/form/<scene>")
    def form(scene: str) -> dict[str, object]:
        token = idempotency.token(scene)
        return {"token": token, "recorded": g.get("recorded", False)}

    def work() -> Any:
        return Run(book).do()

    for scene, options in VIEWS.items():
        app.add_url_rule(f"/work/{scene}", scene, idempotent(scene=scene, **options)(work), methods=["POST"])
    return app


def listen(app: Flask, book: Book) -> None:
    """Book what the product says of itself."""

    def hear(_: Flask, event: Any) -> None:
        if event.name == "issued":
            g.recorded = True
            return
        attempt = request.headers.get("X-Attempt", "") if has_request_context() else ""  # not from the heartbeat
        book.write("event", name=event.name, token=event.digest, attempt=attempt, reason=event.reason)

    for signal in signals.ALL.values():
        signal.connect(hear, app, weak=False)


def watch_the_clock(book: Book) -> None:
    """Book when this process stood still: frozen, or starved by a busy machine."""
    while True:
        before = time.monotonic()
        time.sleep(BEAT)
        if time.monotonic() - before > STALL:
            book.write("stall", since=before)


def sabotage(name: str) -> None:
    """Break the product, to see whether the checker of the campaign finds it."""
    if name == "no-heartbeat":
        heartbeat.add = lambda hold: None
    elif name == "claims-what-is-held":
        line = b"if now < record.held then return verdict_of(record) end"
        whole = redis_store._CLAIM.body
        if whole.count(line) != 1:
            raise RuntimeError("the line is not in the script, or twice")
        redis_store._CLAIM = redis_store._Script.of(whole.replace(line, b""))
    elif name:
        raise ValueError(f"no sabotage {name!r}; there are {', '.join(SABOTAGES)}")
