"""An app with a view for each source, whose policy is printed by the real command.

``flask --app "tests.apps.published:create_app(store='redis://…')" idempotency policy``
"""

from __future__ import annotations

from typing import Any

from flask import Flask, request

from flask_idempotent import Idempotency, idempotent
from tests.apps import off_switch


def invoice_key(number: int) -> str:
    return f"invoice {number}"


def create_app(store: Any = "memory://", **config: Any) -> Flask:
    app = off_switch(Flask("published"))
    app.config.update(SECRET_KEY="a secret of the tests")
    app.config.update({f"IDEMPOTENCY_{key}": value for key, value in config.items()})
    Idempotency(app, store=store)
    runs: list[str] = []
    app.extensions["runs"] = runs

    def run(**_: Any) -> tuple[str, int]:
        runs.append(request.path)
        return f"run {len(runs)}", int(request.args.get("status", 201))

    def add(rule: str, *methods: str, **options: Any) -> None:
        app.add_url_rule(rule, rule.split("/")[1], idempotent(**options)(run), methods=methods or ("POST",))

    add("/form", description="Places an order | by hand")
    add("/orders", "POST", "PUT", source="header", scene="order.create", ttl=1800, ignore=("sent_at",))
    add("/either", source=("token", "header"), on_duplicate="reject", wait=0.5)
    add("/pay/<order_no>", source="param", name="order_no", restore_on_error=False, fingerprint=("amount", "currency"))
    add("/callback", key="(json.provider, json.number)", on_duplicate="ignore", lock="json.account", fingerprint=False)
    add("/invoice/<int:number>", key=invoice_key, required=False, final=lambda answer: answer.status_code < 500)
    add("/vote", interval=2)
    add("/once", consume=True, on_duplicate="reject")
    app.add_url_rule("/plain", "plain", run, methods=["POST"])
    app.add_url_rule("/form-page", "form_page", lambda: app.jinja_env.from_string("{{ idempotency_token() }}").render())
    return app
