"""A decorator that calls a view again: each try takes a claim of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from flask import request

from flask_idempotent import idempotent
from flask_idempotent.core.errors import StoreUnavailable
from flask_idempotent.stores.memory import MemoryStore
from tests.helpers import Ledger, assert_refused, assert_repeated, make_app


class Away(MemoryStore):
    """A store that can be out of reach."""

    away = True

    def claim(self, *args: Any, **options: Any) -> Any:
        if self.away:
            raise StoreUnavailable
        return super().claim(*args, **options)


def twice(view: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(view)
    def tries(**arguments: Any) -> Any:
        try:
            return view(**arguments)
        except ConnectionError:
            return view(**arguments)

    return tries


@pytest.mark.case("S8", "S13")
def test_the_second_try_is_guarded_when_the_store_is_back() -> None:
    store, ledger = Away(), Ledger()
    tries: list[bool] = []
    beside: list[Any] = []
    app = make_app(store, STORE_DOWN="pass")

    @app.post("/pay")
    @twice
    @idempotent(source="header", lock="json.account")
    def pay() -> Any:
        tries.append(store.away)
        if store.away:
            store.away = False  # meanwhile it is back
            raise ConnectionError
        if request.headers["Idempotency-Key"] == "k-1":
            beside.append(app.test_client().post("/pay", json={"account": "a"}, headers={"Idempotency-Key": "k-2"}))
        return {"number": ledger.add()}, 201

    client = app.test_client()
    asked = {"json": {"account": "a"}, "headers": {"Idempotency-Key": "k-1"}}
    first = client.post("/pay", **asked)

    assert (first.status_code, tries) == (201, [True, False])
    assert_refused(beside[0], "locked")
    assert_repeated(client.post("/pay", **asked), first)
    assert_refused(client.post("/pay", **{**asked, "json": {"account": "b"}}), "key_reused", 422)
    assert len(ledger) == 1
