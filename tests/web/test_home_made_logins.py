"""Logins that an app has made itself: what usually tells who is asking keeps their answers apart."""

from __future__ import annotations

from typing import Any

import pytest

from flask_idempotent import Idempotency, idempotent
from tests.helpers import REPLAYED, Ledger, assert_refused, make_app

HEADERS = ["X-API-Key", "Api-Key", "ApiKey", "X-Auth-Token", "X-Access-Token"]
LOGINS = [pytest.param({"headers": {name: "{}"}}, id=name) for name in HEADERS]
LOGINS.append(pytest.param({"environ_base": {"REMOTE_USER": "{}"}}, id="REMOTE_USER"))


def as_tenant(login: dict[str, dict[str, str]], tenant: str) -> dict[str, dict[str, str]]:
    return {where: {name: text.format(tenant) for name, text in given.items()} for where, given in login.items()}


def shop(source: str) -> tuple[Any, Ledger]:
    app, ledger = make_app(), Ledger()

    @app.post("/pay")
    @idempotent(source=source)
    def pay() -> Any:
        return {"number": ledger.add()}, 201

    return app, ledger


def pay(app: Any, login: dict[str, Any], header: dict[str, str]) -> Any:
    asked = {**login, "headers": {**login.get("headers", {}), **header}}
    return app.test_client().post("/pay", json={"sum": 1}, **asked)


@pytest.mark.case("S8")
@pytest.mark.parametrize("login", LOGINS)
def test_two_tenants_with_one_key_each_have_their_own(login: dict[str, Any]) -> None:
    app, ledger = shop("header")
    one, other = as_tenant(login, "one"), as_tenant(login, "other")
    key = {"Idempotency-Key": "k-1"}

    answers = [pay(app, tenant, key) for tenant in (one, other, one, other)]

    assert [answer.get_json()["number"] for answer in answers] == [1, 2, 1, 2]
    assert [answer.headers.get(REPLAYED) for answer in answers] == [None, None, "true", "true"]
    assert len(ledger) == 2


@pytest.mark.case("S8")
@pytest.mark.parametrize("login", LOGINS)
def test_a_tokens_answer_is_shown_to_the_same_tenant_only(login: dict[str, Any]) -> None:
    app, ledger = shop("token")
    with app.test_request_context("/", environ_base={"REMOTE_ADDR": "127.0.0.1"}):
        token = {"Idempotency-Token": Idempotency().token()}

    pay(app, as_tenant(login, "one"), token)

    assert_refused(pay(app, as_tenant(login, "other"), token), "duplicate")
    assert pay(app, as_tenant(login, "one"), token).headers[REPLAYED] == "true"
    assert len(ledger) == 1
