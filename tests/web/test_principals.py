"""Who is asking, as the app, Flask-Login or Flask-JWT-Extended has verified it."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import uuid
from typing import Any

import flask
import jwt
import pytest
from flask import Flask, g
from flask_httpauth import HTTPBasicAuth
from flask_jwt_extended import JWTManager, jwt_required
from flask_login import LoginManager, current_user, login_user, user_accessed

from flask_idempotent.web.principals import verified_principal, warn_of_guess
from tests.apps.who import (
    FORGER,
    User,
    asked,
    authorization,
    basic,
    bearer,
    jwt_of,
    logged_in,
    login_app,
    new_app,
    read_the_session,
    token_for,
    who,
)

# -- nobody --------------------------------------------------------------------------------------------------------


def test_without_extensions_and_credentials_there_is_nobody() -> None:
    client = new_app().test_client()
    assert asked(client) == {"verified": None, "viewer": "", "namespace": ""}
    assert not read_the_session(client.get("/who"))


def test_nothing_is_imported_that_the_app_did_not_import() -> None:
    code = (
        "import sys, flask, flask_idempotent\n"
        "from flask_idempotent.web.principals import verified_principal\n"
        "app = flask.Flask('bare')\n"
        "with app.test_request_context(headers={'Authorization': 'Bearer a.b.c'}):\n"
        "    assert verified_principal(None) is None\n"
        "print(sorted(m for m in sys.modules if m in ('flask_login', 'flask_jwt_extended', 'jwt', 'flask_httpauth')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    "headers",
    [basic("ann"), bearer("opaque"), bearer(jwt_of({"sub": "ann"})), authorization("Digest username=ann")],
    ids=["Basic", "Bearer", "JWT", "Digest"],
)
def test_credentials_that_nobody_verified_are_no_principal(headers: dict[str, str]) -> None:
    app = new_app()
    JWTManager(app)
    LoginManager(app).user_loader(lambda name: User(name))
    found = asked(app.test_client(), headers)
    assert found["verified"] is None
    assert found["namespace"] not in ("", found["viewer"])


# -- principal= ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [7, "ann", ("a", 1), uuid.UUID(int=7)], ids=repr)
def test_the_apps_callable_goes_before_every_extension(value: Any) -> None:
    app = new_app()
    with app.test_request_context():
        g.flask_httpauth_user = "bob"
        mine = verified_principal(lambda: value)
        assert mine == verified_principal(lambda: value)
        assert mine not in (None, verified_principal(None), verified_principal(lambda: "bob"))
        assert verified_principal(lambda: None) is None


async def later() -> str:
    return "ann"


class Plain:
    def method(self) -> None: ...


@pytest.mark.parametrize("value", [Plain(), Plain().method, later], ids=["object", "method", "function"])
def test_an_object_whose_text_is_its_address_is_an_error_that_names_the_cure(value: Any) -> None:
    with new_app().test_request_context(), pytest.raises(TypeError, match="return its id"):
        verified_principal(lambda: value)


def test_a_coroutine_is_no_principal() -> None:
    coroutine = later()
    with new_app().test_request_context(), pytest.raises(TypeError, match="coroutine"):
        verified_principal(lambda: coroutine)
    coroutine.close()


def test_a_proxy_is_what_it_stands_for() -> None:
    app = login_app()
    with app.test_request_context():
        login_user(User("ann"))
        with pytest.raises(TypeError, match="a User, whose text"):
            verified_principal(lambda: current_user)


# -- Flask-Login ---------------------------------------------------------------------------------------------------


def test_a_user_of_flask_login_is_the_same_in_every_session() -> None:
    app = login_app()
    ann = asked(logged_in(app, "ann"))
    assert ann["verified"] == ann["viewer"] == ann["namespace"] is not None
    assert asked(logged_in(app, "ann")) == ann
    assert asked(logged_in(app, "bob"))["verified"] not in (None, ann["verified"])
    assert asked(app.test_client())["verified"] is None


def test_a_remembered_user_is_the_user() -> None:
    app = login_app()
    client = logged_in(app, "ann")
    ann = asked(client)
    client.delete_cookie("session")
    assert client.get_cookie("remember_token") is not None
    assert asked(client) == ann


def test_a_forged_remember_cookie_is_nobody() -> None:
    client = login_app().test_client()
    client.set_cookie("remember_token", "ann|" + "0" * 128)
    assert asked(client)["verified"] is None


def test_credentials_beside_a_session_do_not_change_who_it_is() -> None:
    client = logged_in(login_app(), "ann")
    assert asked(client, basic("bob")) == asked(client)


class Odd:
    """A user as an app may write one."""

    is_authenticated = True

    def __init__(self, identity: Any) -> None:
        self.identity = identity

    def get_id(self) -> Any:
        if isinstance(self.identity, Exception):
            raise self.identity
        return self.identity


class Broken:
    @property
    def is_authenticated(self) -> bool:
        raise LookupError("detached")


@pytest.mark.parametrize(
    "user",
    [
        Odd(None),
        Odd(""),
        Odd(NotImplementedError()),
        Odd(Plain()),
        Broken(),
        object(),
        type("NoId", (), {"is_authenticated": True})(),
    ],
    ids=["None", "empty", "raises", "object", "broken", "bare", "no get_id"],
)
def test_a_user_object_without_a_name_is_nobody(user: Any) -> None:
    app = login_app(load=lambda name: user)
    assert asked(logged_in(app, "ann"))["verified"] is None


def test_an_error_of_the_apps_loader_is_the_apps_error() -> None:
    def load(name: str) -> User:
        raise ConnectionError("database")

    app = login_app(load)
    app.testing = False
    assert logged_in(app, "ann").get("/who").status_code == 500  # not nobody: that would be another name space


def test_flask_login_without_a_loader_is_not_asked() -> None:
    app = new_app()
    LoginManager(app)
    assert asked(app.test_client())["verified"] is None


# -- Flask-JWT-Extended --------------------------------------------------------------------------------------------


def jwt_app(**config: Any) -> Flask:
    app = new_app()
    app.config.update(config)
    JWTManager(app)
    app.add_url_rule("/required", "required", jwt_required()(who))
    app.add_url_rule("/optional", "optional", jwt_required(optional=True)(who))
    return app


def test_the_subject_of_a_verified_token_is_the_principal_and_a_renewed_one_the_same() -> None:
    app = jwt_app()
    client, first, second = app.test_client(), token_for(app, "ann"), token_for(app, "ann")
    assert first != second
    ann = asked(client, bearer(first), "/required")
    assert ann["verified"] == ann["viewer"] == ann["namespace"] is not None
    assert asked(client, bearer(second), "/required") == ann
    assert asked(client, bearer(first), "/optional") == ann
    assert asked(client, bearer(token_for(app, "bob")), "/required")["verified"] not in (None, ann["verified"])


def test_a_subject_of_another_issuer_is_another_principal() -> None:
    app = jwt_app()
    client = app.test_client()
    found = [
        asked(client, bearer(token_for(app, "7", **iss)), "/required")["verified"]
        for iss in ({}, {"iss": "a"}, {"iss": "b"})
    ]
    assert None not in found
    assert len(set(found)) == 3
    assert asked(client, bearer(token_for(app, "7", iss="a")), "/required")["verified"] == found[1]


def test_the_claim_that_the_app_names_is_the_identity() -> None:
    app = jwt_app(JWT_IDENTITY_CLAIM="user")
    client = app.test_client()
    ann, bob = (
        asked(client, bearer(token_for(app, name, sub="same")), "/required")["verified"] for name in ("ann", "bob")
    )
    assert None not in (ann, bob)
    assert ann != bob


def test_a_token_in_a_cookie_counts_too() -> None:
    app = jwt_app(JWT_TOKEN_LOCATION=["headers", "cookies"])
    client = app.test_client()
    client.set_cookie("access_token_cookie", token_for(app, "ann"))
    assert asked(client, path="/required") == asked(app.test_client(), bearer(token_for(app, "ann")), "/required")


def test_without_a_token_where_it_is_optional_there_is_nobody() -> None:
    assert asked(jwt_app().test_client(), path="/optional") == {"verified": None, "viewer": "", "namespace": ""}


def test_a_good_token_that_no_view_asked_for_is_no_principal() -> None:
    app = jwt_app()
    assert asked(app.test_client(), bearer(token_for(app, "ann")))["verified"] is None


def test_a_forged_token_shares_the_name_space_of_the_unverified_and_nothing_else() -> None:
    app = jwt_app()
    real = token_for(app, "ann")
    forged = jwt.encode(jwt.decode(real, options={"verify_signature": False}), FORGER, "HS256")
    client = app.test_client()

    by_real, by_forged = asked(client, bearer(real)), asked(client, bearer(forged))

    assert client.get("/required", headers=bearer(forged)).status_code == 422
    assert by_forged["verified"] is None
    assert by_forged["namespace"] == by_real["namespace"]
    assert by_forged["viewer"] != by_real["viewer"]
    assert by_forged["namespace"] != asked(client, bearer(real), "/required")["namespace"]


# -- several -------------------------------------------------------------------------------------------------------


def app_of_all() -> Flask:
    app = login_app()
    JWTManager(app)
    auth = HTTPBasicAuth()
    auth.verify_password(lambda name, password: name if password == "pw" else None)
    app.add_url_rule("/basic", "basic", auth.login_required(who))
    app.add_url_rule("/required", "required", jwt_required()(who))
    return app


def test_one_name_of_several_kinds_is_as_many_principals() -> None:
    app = app_of_all()
    client, token = app.test_client(), token_for(app, "ann")
    found = [
        asked(logged_in(app, "ann")),
        asked(client, bearer(token), "/required"),
        asked(client, basic("ann"), "/basic"),
        asked(client, bearer(token)),
        asked(client, basic("ann")),
        asked(client, bearer("ann")),
        asked(client, authorization('Digest username="ann"')),
        asked(client, authorization("ann")),
    ]
    with app.test_request_context():
        found.append({"namespace": verified_principal(lambda: "ann")})
    assert len({each["namespace"] for each in found}) == len(found)
    assert len({each["viewer"] for each in found[:-1]}) == len(found) - 1


@pytest.mark.parametrize("path", ["/required", "/basic"])
def test_what_a_view_asks_for_goes_before_the_session(path: str) -> None:
    app = app_of_all()
    headers = {name: bearer(token_for(app, name)) if path == "/required" else basic(name) for name in ("bob", "cat")}
    shared = logged_in(app, "ann")
    bob, cat = (asked(shared, headers[name], path) for name in ("bob", "cat"))
    assert bob["verified"] != cat["verified"]
    assert bob == asked(app.test_client(), headers["bob"], path)


def test_flask_login_is_not_asked_where_a_view_has_asked_for_somebody() -> None:
    app = app_of_all()
    client, looked_up = app.test_client(), []
    with user_accessed.connected_to(lambda sender: looked_up.append(flask.request.path)):
        for path, headers in {"/required": bearer(token_for(app, "ann")), "/basic": basic("ann"), "/who": None}.items():
            asked(client, headers, path)
    assert looked_up == ["/who"]


# -- the warning ---------------------------------------------------------------------------------------------------


def test_a_guess_is_warned_of_once_for_each_app(caplog: pytest.LogCaptureFixture) -> None:
    shop, bank = Flask("shop"), Flask("bank")
    with caplog.at_level(logging.WARNING, "flask_idempotent"):
        threads = [threading.Thread(target=warn_of_guess, args=(shop,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        warn_of_guess(bank)
        warn_of_guess(bank)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    first, second = (record.getMessage() for record in caplog.records)
    assert "'shop'" in first
    assert "'bank'" in second
    for words in ("principal=", "IDEMPOTENCY_PRINCIPAL", "cookies"):
        assert words in first
