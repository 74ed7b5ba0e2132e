"""An app that has another extension beside ours, initialised before or after it; and one submission by either door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask, render_template_string

from flask_idempotent import Idempotency, idempotent
from flask_idempotent.stores.memory import MemoryStore
from tests.apps import off_switch
from tests.helpers import FIELD, Ledger, token_of

either_order = pytest.mark.parametrize("order", ["neighbour first", "neighbour last"])
either_door = pytest.mark.parametrize("door", ["token", "key"])


class Neighbourhood:
    """``POST /work``, guarded by token or key; and ``/form``, which issues a token.

    :param order: which of the two extensions ``init_app`` is called first for.
    :param neighbour: what initialises the other one.
    :param outer: decorators above the guard, from the inside out.
    """

    def __init__(
        self,
        order: str,
        neighbour: Callable[[Flask], Any],
        *outer: Callable[..., Any],
        store: Any = None,
        **config: Any,
    ) -> None:
        self.app = off_switch(Flask("tests.neighbours"))
        self.app.config.update(TESTING=True, SECRET_KEY="a secret of the tests", PROPAGATE_EXCEPTIONS=False, **config)
        self.ledger = Ledger()
        self.answer: Callable[[], Any] = lambda: ({"number": len(self.ledger)}, 201)
        steps = [lambda: Idempotency(self.app, store=store or MemoryStore()), lambda: neighbour(self.app)]
        for step in steps if order == "neighbour last" else reversed(steps):
            step()
        self.guard("/work", *outer)

        @self.app.get("/form")
        def form() -> str:
            return render_template_string("<form method=post>{{ idempotency_token() }}</form>")

    def guard(self, path: str, *outer: Callable[..., Any], **options: Any) -> None:
        """Add a guarded view."""

        def work() -> Any:
            self.ledger.add()
            return self.answer()

        view: Any = idempotent(**{"source": ("token", "header"), **options})(work)
        for layer in outer:
            view = layer(view)
        self.app.add_url_rule(path, path.strip("/"), view, methods=["POST"])

    def submission(self, door: str, client: Any = None) -> Callable[..., Any]:
        """Return what sends one submission, as often as it is called."""
        first = client or self.app.test_client()
        value = token_of(first) if door == "token" else "a-key-of-the-client"

        def send(headers: Any = None, *, client: Any = None, path: str = "/work", **fields: Any) -> Any:
            data = {"sum": "1", **fields, **({FIELD: value} if door == "token" else {})}
            key = {"Idempotency-Key": value} if door == "key" else {}
            return (client or first).post(path, data=data, headers={**key, **(headers or {})})

        return send
