"""An app of views that are guarded by keys which clients made."""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, request

from flask_idempotent import idempotent
from tests.helpers import Ledger, make_app

KEY_HEADER = "Idempotency-Key"


class Till:
    """Books each run of a view and answers its number.

    :param store: as for ``make_app``, and so is ``config``.
    :param ledger: a file to book in.
    """

    def __init__(self, store: Any = None, *, ledger: str | None = None, **config: Any) -> None:
        self.app = make_app(store, **config)
        self.ledger = Ledger(ledger)
        self.client = self.app.test_client()

    def add(self, path: str = "/orders", *methods: str, endpoint: str | None = None, **options: Any) -> Till:
        """Add a guarded view; by the header's key, if the options do not say otherwise."""
        if not {"source", "key"} & set(options):
            options["source"] = "header"
        self._rule(path, methods or ("POST",), endpoint, idempotent(**options)(self._view()))
        return self

    def add_unmarked(self, path: str = "/plain", *methods: str) -> Till:
        """Add a view that nothing guards."""
        self._rule(path, methods or ("POST",), None, self._view())
        return self

    def send(self, key: str | None = None, path: str = "/orders", method: str = "POST", **sent: Any) -> Any:
        """Send a request as a server would hand it on: the line's bytes each as one character.

        :param key: the line of the header, or None for no such line.
        """
        if key is not None:
            sent["environ_overrides"] = {"HTTP_IDEMPOTENCY_KEY": key.encode().decode("latin-1")}
        return self.client.open(path, method=method, **sent)

    def _rule(self, path: str, methods: tuple[str, ...], endpoint: str | None, view: Any) -> None:
        self.app.add_url_rule(path, endpoint or path.strip("/"), view, methods=list(methods))

    def _view(self) -> Any:
        def view(**_: Any) -> tuple[dict[str, Any], int]:
            return {"path": request.path, "number": self.ledger.add(f"{request.method} {request.path}")}, 201

        return view


def assert_ran(response: Any, number: int) -> None:
    """The view ran, and it was the run of that number."""
    assert (response.status_code, response.get_json().get("number")) == (201, number), response.text
    assert "Idempotent-Replayed" not in response.headers


def create_app() -> Flask:
    """Serve ``POST /orders`` and, keyed by a parameter, ``/param``. From the environment: STORE (a URL), LEDGER."""
    till = Till(os.environ["STORE"], ledger=os.environ["LEDGER"])
    return till.add().add("/param", source="param").app
