"""Client-made keys under principals: each has its own, and nobody is shown another's answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

import jwt
import pytest
from flask import Blueprint, Flask, abort, g, request, session
from flask_httpauth import HTTPBasicAuth
from flask_jwt_extended import JWTManager, jwt_required
from flask_login import login_required, logout_user

from flask_idempotent import idempotent
from tests.apps.who import FORGER, basic, bearer, login_routes, token_for
from tests.helpers import REPLAYED, Ledger, assert_refused, assert_repeated, make_app

SECRET = "IBAN DE02 1203 0000 0000 2020 51"


class Payments:
    """``POST /pay``, guarded by the header's key; the answer tells its number and a secret."""

    def __init__(self, *outer: Callable[..., Any], inner: tuple[Callable[..., Any], ...] = (), **options: Any) -> None:
        self.app = make_app(JWT_SECRET_KEY="thirty-two bytes at the least, so more")
        self.ledger = Ledger()

        def pay(**_: Any) -> Any:
            return {"secret": SECRET, "number": self.ledger.add()}, 201

        view: Any = pay
        for layer in (*inner, idempotent(**{"source": "header", **options}), *outer):
            view = layer(view)
        self.app.add_url_rule("/pay", "pay", view, methods=["POST"])
        self.app.add_url_rule("/pay/<number>", "pay_numbered", view, methods=["POST"])

    def pay(self, headers: Any = None, *, client: Any = None, key: str = "k-1", path: str = "/pay") -> Any:
        given = {"Idempotency-Key": key, **(headers or {})}
        return (client or self.app.test_client()).post(path, json={"sum": 1}, headers=given)


def assert_made(response: Any, number: int) -> None:
    assert (response.status_code, response.get_json()) == (201, {"secret": SECRET, "number": number})
    assert REPLAYED not in response.headers


def assert_not_shown(response: Any) -> None:
    assert_refused(response, "duplicate")
    assert SECRET not in response.text


def forged(token: str) -> str:
    return jwt.encode(jwt.decode(token, options={"verify_signature": False}), FORGER, "HS256")


# -- verified ------------------------------------------------------------------------------------------------------


def with_jwt() -> tuple[Payments, Callable[[str], Any]]:
    bank = Payments(jwt_required())
    JWTManager(bank.app)
    return bank, lambda name: bank.pay(bearer(token_for(bank.app, name)))


def with_basic() -> tuple[Payments, Callable[[str], Any]]:
    auth = HTTPBasicAuth()
    auth.verify_password(lambda name, password: name)
    bank = Payments(auth.login_required)
    return bank, lambda name: bank.pay(basic(name))


def with_login() -> tuple[Payments, Callable[[str], Any]]:
    bank = Payments(login_required)
    login_routes(bank.app)

    def pay(name: str) -> Any:
        client = bank.app.test_client()
        client.post(f"/login/{name}")
        return bank.pay(client=client)

    return bank, pay


def with_a_hook_of_the_apps() -> tuple[Payments, Callable[[str], Any]]:
    bank = Payments(principal=lambda: g.user)

    @bank.app.before_request
    def log_in() -> None:  # registered after ours
        g.user = request.headers.get("X-User")

    return bank, lambda name: bank.pay({"X-User": name})


@pytest.mark.case("S8", "S24")
@pytest.mark.parametrize("make", [with_jwt, with_basic, with_login, with_a_hook_of_the_apps])
def test_each_principal_has_its_own_keys_and_is_shown_its_own_answers(make: Any) -> None:
    bank, pay = make()

    ann, bob = pay("ann"), pay("bob")

    assert_made(ann, 1)
    assert_made(bob, 2)
    assert_repeated(pay("ann"), ann)
    assert_repeated(pay("bob"), bob)
    assert len(bank.ledger) == 2


@pytest.mark.case("S8")
def test_a_renewed_token_of_one_subject_runs_once_and_a_forged_one_is_refused_before_anything_is_shown() -> None:
    bank, _ = with_jwt()
    first_token, renewed = token_for(bank.app, "ann"), token_for(bank.app, "ann")

    first = bank.pay(bearer(first_token))

    assert first_token != renewed
    assert_repeated(bank.pay(bearer(renewed)), first)
    refused = bank.pay(bearer(forged(first_token)))
    assert refused.status_code == 422
    assert SECRET not in refused.text
    assert len(bank.ledger) == 1


# -- unverified ----------------------------------------------------------------------------------------------------


@pytest.mark.case("S8")
@pytest.mark.parametrize("inner", [(), (jwt_required(),)], ids=["nobody asks", "asked for below the guard"])
def test_where_the_guard_comes_before_the_check_a_renewed_token_runs_once_and_only_the_same_one_is_shown(
    inner: tuple[Any, ...],
) -> None:
    bank = Payments(inner=inner)
    JWTManager(bank.app)
    token = token_for(bank.app, "ann")

    first = bank.pay(bearer(token))

    assert_made(first, 1)
    assert_repeated(bank.pay(bearer(token)), first)
    for other in (token_for(bank.app, "ann"), forged(token)):
        assert_not_shown(bank.pay(bearer(other)))
    bob = bank.pay(bearer(token_for(bank.app, "bob")))
    assert_made(bob, 2)
    assert len(bank.ledger) == 2


@pytest.mark.case("S8")
def test_a_forged_token_that_comes_first_takes_nothing_away() -> None:
    bank = Payments(inner=(jwt_required(),))
    JWTManager(bank.app)
    token = token_for(bank.app, "ann")

    assert bank.pay(bearer(forged(token))).status_code == 422

    first = bank.pay(bearer(token))
    assert_made(first, 1)
    assert_repeated(bank.pay(bearer(token)), first)


@pytest.mark.case("S8")
def test_another_password_of_one_user_finds_the_key_and_not_the_answer() -> None:
    bank = Payments()
    first = bank.pay(basic("ann", "pw"))

    assert_repeated(bank.pay(basic("ann", "pw")), first)
    assert_not_shown(bank.pay(basic("ann", "guess")))
    assert_made(bank.pay(basic("bob", "pw")), 2)
    assert_made(bank.pay(), 3)
    assert len(bank.ledger) == 3


# -- a session that only the app understands -----------------------------------------------------------------------


def in_session(app: Flask, user: str) -> Any:
    client = app.test_client()
    with client.session_transaction() as of_client:
        of_client["user_id"] = user
    return client


@pytest.mark.case("S8", "S19")
@pytest.mark.parametrize(
    "options", [{}, {"source": None, "key": "number", "scene": "pay"}], ids=["header", "order number"]
)
def test_two_sessions_never_see_each_others_answer_and_one_warning_names_the_cure(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    bank = Payments(**{name: value for name, value in {"source": "header", **options}.items() if value is not None})
    ann, bob = in_session(bank.app, "ann"), in_session(bank.app, "bob")

    assert_made(bank.pay(client=ann, path="/pay/7"), 1)
    with caplog.at_level(logging.WARNING, "flask_idempotent"):
        for client in (bob, ann, bob, None):
            assert_not_shown(bank.pay(client=client, path="/pay/7"))

    warned = [record.getMessage() for record in caplog.records if "principal=" in record.getMessage()]
    assert len(warned) == 1
    assert "IDEMPOTENCY_PRINCIPAL" in warned[0]
    assert len(bank.ledger) == 1


@pytest.mark.case("S8", "S19")
def test_with_principal_two_sessions_with_one_order_number_have_an_order_each() -> None:
    bank = Payments(principal=lambda: session.get("user_id"))
    ann, bob = in_session(bank.app, "ann"), in_session(bank.app, "bob")

    of_ann, of_bob = bank.pay(client=ann), bank.pay(client=bob)

    assert_made(of_ann, 1)
    assert_made(of_bob, 2)
    assert_repeated(bank.pay(client=in_session(bank.app, "ann")), of_ann)
    assert_repeated(bank.pay(client=bob), of_bob)
    assert_made(bank.pay(client=bank.app.test_client()), 3)


def test_without_cookies_and_credentials_an_answer_is_shown_by_its_key() -> None:
    bank = Payments()
    first = bank.pay()
    assert_made(first, 1)
    assert_repeated(bank.pay(), first)
    assert len(bank.ledger) == 1


# -- rights are asked for before a replay --------------------------------------------------------------------------


def revocable(arrangement: str) -> tuple[Payments, Any, Callable[[], Any]]:
    """An app that lets "ann" in until ``revoked`` holds something."""
    revoked: list[str] = []

    def check() -> None:
        if request.method == "POST" and revoked and not request.path.startswith("/login"):
            abort(403)

    def checked(view: Any) -> Any:
        @wraps(view)
        def wrapper(**arguments: Any) -> Any:
            check()
            return view(**arguments)

        return wrapper

    bank = Payments(*([checked] if arrangement == "decorator" else []), principal=lambda: "ann")
    if arrangement == "hook":
        bank.app.before_request(check)
    path = "/pay"
    if arrangement == "blueprint":
        blueprint = Blueprint("api", __name__, url_prefix="/api")
        blueprint.before_request(check)
        blueprint.add_url_rule("/pay", "pay", bank.app.view_functions["pay"], methods=["POST"])
        bank.app.register_blueprint(blueprint)
        path = "/api/pay"
    return bank, revoked, lambda: bank.pay(path=path)


@pytest.mark.case("S8")
@pytest.mark.parametrize("arrangement", ["hook", "decorator", "blueprint"])
def test_who_has_lost_the_right_is_refused_and_not_replayed_to(arrangement: str) -> None:
    bank, revoked, pay = revocable(arrangement)
    first = pay()
    assert_repeated(pay(), first)

    revoked.append("ann")
    refused = pay()

    assert refused.status_code == 403
    assert SECRET not in refused.text
    revoked.clear()
    assert_repeated(pay(), first)
    assert len(bank.ledger) == 1


@pytest.mark.case("S8")
def test_who_has_logged_out_is_refused_and_not_replayed_to() -> None:
    bank = Payments(login_required)
    login_routes(bank.app)
    bank.app.add_url_rule("/logout", "logout", lambda: str(logout_user()), methods=["POST"])
    client = bank.app.test_client()
    client.post("/login/ann")
    first = bank.pay(client=client)
    assert_repeated(bank.pay(client=client), first)

    client.post("/logout")

    refused = bank.pay(client=client)
    assert refused.status_code == 401
    assert SECRET not in refused.text
    assert len(bank.ledger) == 1
