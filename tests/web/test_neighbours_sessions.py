"""Extensions that keep something in the session, initialised before and after ours: Flask-Login, Flask-WTF,
Flask-Session."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from flask import Flask, jsonify, session
from flask_login import LoginManager, current_user, login_required, login_user, logout_user
from flask_session import Session
from flask_wtf import CSRFProtect, FlaskForm
from flask_wtf.csrf import generate_csrf
from wtforms import StringField
from wtforms.validators import DataRequired

from flask_idempotent import idempotent
from tests.apps.neighbours import Neighbourhood, either_door, either_order
from tests.apps.who import User, logged_in
from tests.helpers import FIELD, REPLAYED, assert_refused, assert_repeated, token_of
from tests.servers import RedisServer

# -- Flask-Login ---------------------------------------------------------------------------------------------------


def login(app: Flask) -> None:
    LoginManager(app).user_loader(User)
    app.add_url_rule("/login/<name>", "login", lambda name: str(login_user(User(name))), methods=["POST"])
    app.add_url_rule("/logout", "logout", lambda: str(logout_user()), methods=["POST"])


@pytest.mark.case("S8", "FORM-10", "WIRE-10")
@either_order
@either_door
def test_with_login_the_user_gets_the_replay_and_who_is_not_logged_in_gets_neither(order: str, door: str) -> None:
    shop = Neighbourhood(order, login, login_required)
    shop.answer = lambda: ({"of": current_user.id, "number": len(shop.ledger)}, 201)
    ann, bob = logged_in(shop.app, "ann"), logged_in(shop.app, "bob")
    send = shop.submission(door, ann)

    assert send(client=shop.app.test_client()).status_code == 401  # and the token or key is good
    first = send()
    assert first.get_json() == {"of": "ann", "number": 1}
    assert_repeated(send(), first)
    assert_repeated(send(client=logged_in(shop.app, "ann")), first)

    of_bob = send(client=bob)
    if door == "token":
        assert_refused(of_bob, "duplicate")
    else:
        assert of_bob.get_json() == {"of": "bob", "number": 2}
        assert_repeated(send(client=bob), of_bob)
    ann.post("/logout")
    assert send().status_code == 401
    assert len(shop.ledger) == (1 if door == "token" else 2)


# -- Flask-WTF -----------------------------------------------------------------------------------------------------


class Order(FlaskForm):  # type: ignore[misc]
    item = StringField(validators=[DataRequired()])


class ShopWithForms(Neighbourhood):
    """A form of Flask-WTF at ``/order``, with CSRF protection of the whole app."""

    def __init__(self, order: str, **config: Any) -> None:
        super().__init__(order, CSRFProtect, **config)
        self.client = self.app.test_client()
        self.app.add_url_rule("/csrf", "csrf", generate_csrf)

        @self.app.post("/order")
        @idempotent(source=("token", "header"))
        def order_something() -> Any:
            form = Order()
            if not form.validate_on_submit():
                return jsonify(form.errors), 400
            return {"item": form.item.data, "number": self.ledger.add()}, 201

    def csrf(self) -> list[str]:
        """Two tokens of one session, from pages rendered a minute apart."""
        with pytest.MonkeyPatch.context() as patch:
            earlier = time.time() - 60
            patch.setattr("time.time", lambda: earlier)
            one = self.client.get("/csrf").text
        other = self.client.get("/csrf").text
        assert one != other
        return [one, other]


@pytest.mark.case("S6", "S8", "WIRE-10")
@either_order
@either_door
def test_with_csrf_a_refusal_leaves_the_token_or_key_and_a_fresh_csrf_token_is_the_same_submission(
    order: str, door: str
) -> None:
    shop = ShopWithForms(order)
    send = shop.submission(door, shop.client)

    for refused in (send(path="/order", item="tea"), send(path="/order", item="tea", csrf_token="forged")):
        assert (refused.status_code, len(shop.ledger)) == (400, 0)
        assert "CSRF" in refused.text
    one, other = shop.csrf()
    assert send(path="/order", item="", csrf_token=one).status_code == 400  # the form's own refusal
    first = send(path="/order", item="tea", csrf_token=one)

    assert (first.status_code, first.get_json()) == (201, {"item": "tea", "number": 1})
    if door == "token":
        assert_repeated(send(path="/order", item="tea", csrf_token=other), first)
        assert_repeated(send(path="/order", item="tea", csrf_token=one), first)
    else:  # recorded on a request with a session cookie, in nobody's name
        assert_refused(send(path="/order", item="tea", csrf_token=other), "duplicate")
    forged = send(path="/order", item="tea", csrf_token="forged")
    assert (forged.status_code, "CSRF" in forged.text) == (400, True)  # before the replay
    assert len(shop.ledger) == 1


@pytest.mark.case("S6", "S8")
@either_order
@pytest.mark.parametrize("name", ["csrf_token", "their_csrf"])
def test_with_csrf_and_a_principal_a_fresh_csrf_token_gets_the_replay_by_key(order: str, name: str) -> None:
    shop = ShopWithForms(order, WTF_CSRF_FIELD_NAME=name, IDEMPOTENCY_PRINCIPAL=lambda: "ann")
    send = shop.submission("key", shop.client)
    values = shop.csrf()

    first, again = (send(path="/order", item="tea", **{name: value}) for value in values)

    assert (first.status_code, first.get_json()) == (201, {"item": "tea", "number": 1})
    assert_repeated(again, first)
    assert_refused(send(path="/order", item="coffee", **{name: values[0]}), "key_reused", 422)
    assert len(shop.ledger) == 1


# -- Flask-Session -------------------------------------------------------------------------------------------------


class Sessions:
    """Server-side sessions in a Valkey of their own data base."""

    def __init__(self, server: RedisServer) -> None:
        self.client: redis.Redis = server.client(db=5)

    def init_app(self, app: Flask) -> None:
        app.config.update(SESSION_TYPE="redis", SESSION_REDIS=self.client)
        Session(app)

    def stored(self) -> list[bytes]:
        return sorted(self.client.get(key) for key in self.client.scan_iter())


@pytest.fixture
def sessions(valkey: RedisServer) -> Iterator[Sessions]:
    found = Sessions(valkey)
    found.client.flushdb()
    yield found
    found.client.flushdb()


@pytest.mark.case("FORM-10", "FORM-12", "REPLAY-02")
@either_order
@either_door
def test_with_session_a_view_that_leaves_the_session_alone_makes_none(
    sessions: Sessions, valkey: RedisServer, order: str, door: str
) -> None:
    shop = Neighbourhood(order, sessions.init_app, store=valkey.url)
    send = shop.submission(door)

    first, again = send(), send()

    assert_repeated(again, first)
    for response in (first, again):
        assert "Set-Cookie" not in response.headers
        assert "Vary" not in response.headers  # nobody has read it either
    assert sessions.stored() == []
    assert len(shop.ledger) == 1


@pytest.mark.case("REPLAY-02", "S8")
@either_order
@either_door
def test_with_session_what_the_view_put_into_it_is_written_once_and_a_replay_leaves_it(
    sessions: Sessions, order: str, door: str
) -> None:
    shop = Neighbourhood(order, sessions.init_app, IDEMPOTENCY_PRINCIPAL=lambda: session.get("user"))

    @shop.app.post("/in/<name>")
    def come_in(name: str) -> str:
        session["user"] = name
        return "in"

    @shop.app.get("/cart")
    def cart() -> Any:
        return jsonify(session.get("cart", []))

    def add() -> Any:
        session["cart"] = [*session.get("cart", []), "tea"]
        return {"lines": len(session["cart"])}, 201

    shop.answer = add
    ann, elsewhere, bob = (shop.app.test_client() for _ in range(3))
    for client, name in ((ann, "ann"), (elsewhere, "ann"), (bob, "bob")):
        client.post(f"/in/{name}")
    send = shop.submission(door, ann)

    first = send()
    before = sessions.stored()
    again, from_elsewhere = send(), send(client=elsewhere)

    assert (first.status_code, first.get_json()) == (201, {"lines": 1})
    for response in (again, from_elsewhere):
        assert_repeated(response, first)
    assert sessions.stored() == before
    assert (ann.get("/cart").get_json(), elsewhere.get("/cart").get_json()) == (["tea"], [])
    of_bob = send(client=bob)
    if door == "token":
        assert_refused(of_bob, "duplicate")
    else:
        assert (of_bob.status_code, REPLAYED in of_bob.headers) == (201, False)
    assert len(shop.ledger) == (1 if door == "token" else 2)


@pytest.mark.case("FORM-10")
@either_order
def test_with_session_a_binding_to_the_session_holds_in_it(sessions: Sessions, order: str) -> None:
    shop = Neighbourhood(order, sessions.init_app, IDEMPOTENCY_BINDING="session")
    ann, bob = shop.app.test_client(), shop.app.test_client()
    token = token_of(ann)
    assert len(sessions.stored()) == 1

    by_bob = bob.post("/work", data={FIELD: token})
    first, again = (ann.post("/work", data={FIELD: token}) for _ in range(2))

    assert_refused(by_bob, "token_foreign", 403)
    assert (first.status_code, len(shop.ledger)) == (201, 1)
    assert_repeated(again, first)
