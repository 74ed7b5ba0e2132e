"""To whom a finished duplicate's answer is shown: the token's holder, or only the one in whose name it was recorded."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from flask import Flask, flash, g, request
from flask_login import LoginManager, UserMixin, login_required, login_user, logout_user

from flask_idempotent import Duplicate, ResponseUnavailable, idempotent
from tests.helpers import FIELD, REPLAYED, Ledger, assert_refused, assert_repeated, make_app, token_of
from tests.servers import RedisServer

SECRET = "IBAN DE02 1203 0000 0000 2020 51"


def basic(user: str, password: str = "pw") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def as_user(name: str | None) -> dict[str, str]:
    return {} if name is None else {"X-User": name}


class Bank:
    """An app whose guarded view answers a secret; who is asking is told by ``X-User``, to an app that believes it."""

    def __init__(self, store: Any = None, *, options: Any = None, **config: Any) -> None:
        self.app, self.ledger = make_app(store, **config), Ledger()

        @self.app.before_request
        def log_in() -> None:  # registered after ours: what it sets is not known to our hook
            g.user = request.headers.get("X-User")

        @self.app.post("/pay")
        @idempotent(**(options or {}))
        def pay() -> Any:
            self.ledger.add()
            return {"secret": SECRET}, 201

    def token(self) -> str:
        return token_of(self.app.test_client())

    def pay(self, token: str, headers: Any = None, client: Any = None) -> Any:
        return (client or self.app.test_client()).post("/pay", data={FIELD: token, "sum": "1"}, headers=headers)


def present_user() -> str | None:
    return g.user  # type: ignore[no-any-return]


def assert_not_shown(response: Any) -> None:
    assert_refused(response, "duplicate")
    assert SECRET not in response.text
    assert "Retry-After" not in response.headers


# -- nobody's ------------------------------------------------------------------------------------------------------


@pytest.mark.case("REPLAY-02", "S6")
@pytest.mark.parametrize("repeater", ["anonymous", "a session", "credentials"])
def test_an_answer_in_nobodys_name_is_shown_to_whoever_holds_the_token(any_store: Any, repeater: str) -> None:
    bank = Bank(any_store)
    token = bank.token()
    first = bank.pay(token)
    client = bank.app.test_client()
    if repeater == "a session":
        with client.session_transaction() as of_client:
            of_client["user"] = "7"

    again = bank.pay(token, headers=basic("ann") if repeater == "credentials" else None, client=client)

    assert_repeated(again, first)
    assert len(bank.ledger) == 1


@pytest.mark.case("S6")
def test_an_answer_recorded_with_a_session_and_no_principal_is_shown_by_token() -> None:
    bank = Bank()
    token = bank.token()
    client = bank.app.test_client()
    with client.session_transaction() as of_client:
        of_client["user"] = "7"

    first = bank.pay(token, client=client)

    assert_repeated(bank.pay(token, client=client), first)
    assert_repeated(bank.pay(token), first)  # a home-made login says who it is by principal=
    assert len(bank.ledger) == 1


# -- principal= ----------------------------------------------------------------------------------------------------


@pytest.mark.case("S6", "S7", "S24")
@pytest.mark.parametrize("how", ["option", "setting"])
def test_an_answer_in_a_principals_name_is_shown_only_to_the_same(any_store: Any, how: str) -> None:
    options: dict[str, Any] = {"principal": present_user} if how == "option" else {}
    settings: dict[str, Any] = {"PRINCIPAL": present_user} if how == "setting" else {}
    bank = Bank(any_store, options=options, **settings)
    token = bank.token()

    first = bank.pay(token, as_user("ann"))

    assert_repeated(bank.pay(token, as_user("ann")), first)
    for other in ("bob", "an", "anna", "ANN", "", None):
        assert_not_shown(bank.pay(token, as_user(other)))
    assert_not_shown(bank.pay(token, basic("ann")))
    assert_repeated(bank.pay(token, {**as_user("ann"), **basic("x")}), first)
    assert len(bank.ledger) == 1


@pytest.mark.case("S6", "S7")
def test_an_option_goes_before_the_setting_of_the_app() -> None:
    bank = Bank(options={"principal": present_user}, PRINCIPAL=lambda: "everybody")
    token = bank.token()

    first = bank.pay(token, as_user("ann"))

    assert_not_shown(bank.pay(token, as_user("bob")))
    assert_repeated(bank.pay(token, as_user("ann")), first)


@pytest.mark.case("S6")
@pytest.mark.parametrize("value", [7, 0, "7", ("a", 1), 3.5], ids=repr)
def test_a_principal_may_be_any_value(value: Any) -> None:
    bank = Bank(options={"principal": lambda: value if present_user() == "ann" else "other"})
    token = bank.token()

    first = bank.pay(token, as_user("ann"))

    assert_repeated(bank.pay(token, as_user("ann")), first)
    assert_not_shown(bank.pay(token, as_user("bob")))
    assert len(bank.ledger) == 1


@pytest.mark.case("S6")
def test_where_principal_says_nobody_the_credentials_count(any_store: Any) -> None:
    bank = Bank(any_store, options={"principal": present_user})
    token = bank.token()

    first = bank.pay(token, basic("ann"))

    assert_repeated(bank.pay(token, basic("ann")), first)
    assert_not_shown(bank.pay(token, basic("bob")))
    assert_not_shown(bank.pay(token))
    assert_not_shown(bank.pay(token, as_user("ann")))
    assert len(bank.ledger) == 1


@pytest.mark.case("S6")
def test_where_principal_says_nobody_at_all_the_holder_of_the_token_is_shown_it() -> None:
    bank = Bank(options={"principal": lambda: None})
    token = bank.token()

    first = bank.pay(token)

    assert_repeated(bank.pay(token, as_user("bob")), first)
    assert len(bank.ledger) == 1


@pytest.mark.case("S6")
def test_principal_is_asked_after_the_apps_own_hooks_and_only_where_an_answer_is_at_stake() -> None:
    asked: list[str | None] = []

    def principal() -> str | None:
        asked.append(g.user)
        return present_user()

    bank = Bank(options={"principal": principal})
    app = bank.app

    @app.post("/rejecting")
    @idempotent(principal=principal, on_duplicate="reject")
    def rejecting() -> str:
        return "done"

    @app.post("/bare")
    def bare() -> str:
        return "done"

    app.test_client().post("/bare")
    assert_refused(bank.pay("0" * 32), "token_unknown")
    token, other = bank.token(), bank.token()
    for _ in range(2):
        app.test_client().post("/rejecting", data={FIELD: other})
    assert asked == []

    bank.pay(token, as_user("ann"))
    assert asked == ["ann"]
    bank.pay(token, as_user("ann"))
    assert asked == ["ann", "ann"]


@pytest.mark.case("S6")
def test_a_principal_that_breaks_is_the_apps_error_and_the_token_stays_good() -> None:
    def breaking() -> str:
        if g.user == "breaks":
            raise LookupError("no such user")
        return "ann"

    bank = Bank(options={"principal": breaking})
    token = bank.token()

    assert bank.pay(token, as_user("breaks")).status_code == 500
    assert len(bank.ledger) == 0
    first = bank.pay(token)

    assert first.status_code == 201
    assert_repeated(bank.pay(token), first)
    assert len(bank.ledger) == 1


@pytest.mark.case("REPLAY-02")
def test_neither_names_nor_credentials_are_stored(valkey: RedisServer) -> None:
    bank = Bank(valkey.url, options={"principal": present_user})
    tokens = [bank.token(), bank.token()]

    bank.pay(tokens[0], as_user("ann-the-principal"))
    bank.pay(tokens[1], {"Authorization": "Bearer a-very-secret-bearer"})

    stored = b"".join(valkey.control.get(key) + key for key in valkey.control.scan_iter())
    assert SECRET.encode() in stored
    for raw in (b"ann-the-principal", b"a-very-secret-bearer", b"Bearer", *(t.encode() for t in tokens)):
        assert raw not in stored


# -- credentials ---------------------------------------------------------------------------------------------------


@pytest.mark.case("S6")
@pytest.mark.parametrize(
    ("own", "others"),
    [
        (basic("ann"), [basic("bob"), {}, {"Authorization": "Bearer x"}]),
        ({"Authorization": "Bearer abc"}, [{"Authorization": "Bearer abd"}, {}, basic("ann")]),
        ({"Authorization": "Token 1"}, [{"Authorization": "Token 2"}, {"Authorization": "Token"}, {}]),
    ],
    ids=["Basic", "Bearer", "another scheme"],
)
def test_an_answer_under_credentials_is_shown_only_to_the_same(
    any_store: Any, own: dict[str, str], others: list[dict[str, str]]
) -> None:
    bank = Bank(any_store)
    token = bank.token()

    first = bank.pay(token, own)

    assert_repeated(bank.pay(token, own), first)
    for other in others:
        assert_not_shown(bank.pay(token, other))
    assert len(bank.ledger) == 1


# -- Flask-Login ---------------------------------------------------------------------------------------------------


class User(UserMixin):
    def __init__(self, name: str) -> None:
        self.id = name


def login_bank(**options: Any) -> Bank:
    bank = Bank(options=options)
    app = bank.app
    manager = LoginManager(app)

    @manager.user_loader
    def load(name: str) -> User:
        return User(name)

    @app.post("/login/<name>")
    def login(name: str) -> str:
        login_user(User(name))
        return "in"

    @app.post("/logout")
    def logout() -> str:
        logout_user()
        return "out"

    return bank


def logged_in(app: Flask, name: str) -> Any:
    client = app.test_client()
    client.post(f"/login/{name}")
    return client


@pytest.mark.case("S6", "FORM-10")
def test_with_flask_login_an_answer_is_shown_to_its_user_in_any_of_his_sessions() -> None:
    bank = login_bank()
    ann, bob = logged_in(bank.app, "ann"), logged_in(bank.app, "bob")
    token = bank.token()

    first = bank.pay(token, client=ann)

    assert_repeated(bank.pay(token, client=ann), first)
    assert_repeated(bank.pay(token, client=logged_in(bank.app, "ann")), first)
    assert_not_shown(bank.pay(token, client=bob))
    assert_not_shown(bank.pay(token))
    ann.post("/logout")
    assert_not_shown(bank.pay(token, client=ann))
    assert len(bank.ledger) == 1


@pytest.mark.case("S6")
def test_with_flask_login_an_answer_to_nobody_is_shown_to_the_holder_of_the_token() -> None:
    bank = login_bank()
    token = bank.token()

    first = bank.pay(token)

    assert_repeated(bank.pay(token), first)
    assert_repeated(bank.pay(token, client=logged_in(bank.app, "ann")), first)
    assert len(bank.ledger) == 1


@pytest.mark.case("S6")
def test_principal_goes_before_flask_login() -> None:
    bank = login_bank(principal=present_user)
    ann = logged_in(bank.app, "ann")
    token = bank.token()

    first = bank.pay(token, as_user("team"), client=ann)

    assert_repeated(bank.pay(token, as_user("team"), client=logged_in(bank.app, "bob")), first)
    assert_not_shown(bank.pay(token, client=ann))
    assert len(bank.ledger) == 1


@pytest.mark.case("S6", "WIRE-10")
@pytest.mark.parametrize("order", ["login above", "login below"])
def test_a_login_that_is_asked_for_by_a_decorator_refuses_a_stranger_first(order: str) -> None:
    bank = login_bank()
    app, ledger = bank.app, bank.ledger

    def private() -> Any:
        ledger.add()
        return {"secret": SECRET}, 201

    layers = [idempotent, login_required] if order == "login above" else [login_required, idempotent]
    for layer in layers:
        private = layer(private)
    app.add_url_rule("/private", "private", private, methods=["POST"])
    token, ann = bank.token(), logged_in(app, "ann")

    def post(client: Any) -> Any:
        return client.post("/private", data={FIELD: token})

    assert post(app.test_client()).status_code == 401  # the token stays good
    first = post(ann)
    assert_repeated(post(ann), first)
    stranger = post(app.test_client())
    assert stranger.status_code == (401 if order == "login above" else 409)
    assert SECRET not in stranger.text
    assert len(ledger) == 1


@pytest.mark.case("S6")
def test_a_view_that_logs_somebody_in_answers_the_one_who_was_there() -> None:
    bank = login_bank()
    app, ledger = bank.app, bank.ledger

    @app.post("/sign-up")
    @idempotent
    def sign_up() -> Any:
        ledger.add()
        login_user(User("new"))
        return "welcome", 201

    browser, token = app.test_client(), bank.token()

    first = app.test_client().post("/sign-up", data={FIELD: token})  # its answer, and its cookie, are dropped
    again = browser.post("/sign-up", data={FIELD: token})

    assert_repeated(again, first)
    assert len(ledger) == 1


# -- policies ------------------------------------------------------------------------------------------------------


@pytest.mark.case("FORM-03", "S6")
def test_a_callable_policy_cannot_replay_to_somebody_else_either() -> None:
    seen: list[Any] = []

    def policy(error: Any) -> Any:
        seen.append((isinstance(error, Duplicate), error.reason, error.state))
        try:
            return error.replay()
        except ResponseUnavailable as unavailable:
            return f"not for you: {unavailable.reason}", 403

    bank = Bank(options={"principal": present_user, "on_duplicate": policy})
    token = bank.token()

    first = bank.pay(token, as_user("ann"))
    for_bob = bank.pay(token, as_user("bob"))

    assert (for_bob.status_code, for_bob.text) == (403, "not for you: response_unavailable")
    assert REPLAYED not in for_bob.headers
    assert_repeated(bank.pay(token, as_user("ann")), first)
    assert seen == [(True, "duplicate", "done")] * 2
    assert len(bank.ledger) == 1


@pytest.mark.case("S6")
@pytest.mark.parametrize("name", ["ann", "bob"])
def test_other_content_is_other_content_whoever_sends_it(name: str) -> None:
    bank = Bank(options={"principal": present_user})
    token = bank.token()
    bank.pay(token, as_user("ann"))

    other = bank.app.test_client().post("/pay", data={FIELD: token, "sum": "2"}, headers=as_user(name))

    assert_refused(other, "token_reused", 422)
    assert SECRET not in other.text
    assert len(bank.ledger) == 1


@pytest.mark.case("S6")
def test_a_flashed_message_is_not_shown_to_somebody_else() -> None:
    bank = Bank()
    app = bank.app

    @app.post("/flashing")
    @idempotent(principal=present_user)
    def flashing() -> Any:
        bank.ledger.add()
        flash(SECRET)
        return "made", 201

    bob, token = app.test_client(), bank.token()
    app.test_client().post("/flashing", data={FIELD: token}, headers=as_user("ann"))

    assert_not_shown(bob.post("/flashing", data={FIELD: token}, headers=as_user("bob")))
    with bob.session_transaction() as of_bob:
        assert not of_bob
    assert len(bank.ledger) == 1


@pytest.mark.case("FORM-10", "FORM-12")
def test_the_session_is_not_touched_to_find_out_who_is_asking() -> None:
    bank = Bank()
    token = bank.token()

    first, again = bank.pay(token), bank.pay(token)

    assert_repeated(again, first)
    for response in (first, again):  # Flask names the cookie where somebody has read the session
        assert "Cookie" not in response.headers.get("Vary", "")
