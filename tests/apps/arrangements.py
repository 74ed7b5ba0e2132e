"""Who checks who is asking, and where: apps that differ in nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import wraps
from typing import Any

import jwt
from flask import Blueprint, Flask, abort, g, request
from flask_httpauth import HTTPBasicAuth
from flask_jwt_extended import JWTManager, jwt_required, verify_jwt_in_request
from flask_login import LoginManager, login_required
from werkzeug.wrappers import Request as WerkzeugRequest
from werkzeug.wrappers import Response as WerkzeugResponse

from flask_idempotent import Idempotency, idempotent
from flask_idempotent.stores.memory import MemoryStore
from tests.apps import off_switch
from tests.apps.who import User, bearer, token_for
from tests.helpers import HEADER, Ledger

SECRET = "IBAN DE02 1203 0000 0000 2020 51"
KEY = {"Idempotency-Key": "one-order"}


class Door:
    """``POST /pay`` answers a secret to whom the arrangement lets in. ``X-User`` says who it is; the app believes it as
    long as the name is not in ``revoked``.

    :param arrangement: who asks, and where; a name that is none of ``ARRANGEMENTS`` stands for nobody.
    """

    def __init__(self, arrangement: str, **options: Any) -> None:
        self.revoked: set[str] = set()
        self.ledger = Ledger()
        self.app = off_switch(Flask("tests.door"))
        self.app.config.update(TESTING=True, SECRET_KEY="a secret of the tests", JWT_SECRET_KEY="thirty-two bytes" * 2)
        before_ours, after_ours, around, on_blueprint = ARRANGEMENTS.get(arrangement, nobody_asks)(self)
        before_ours()
        self.idempotency = Idempotency(self.app, store=MemoryStore())
        after_ours()

        def pay() -> Any:
            return {"secret": SECRET, "number": self.ledger.add()}, 201

        view = around(idempotent(**{"source": ("token", "header"), **options})(pay))
        api = Blueprint("api", __name__)
        on_blueprint(api)
        api.add_url_rule("/pay", "pay", view, methods=["POST"])
        self.app.register_blueprint(api)

    def name(self) -> str | None:
        name = request.headers.get("X-User")
        return None if name in self.revoked else name

    def check(self) -> None:
        """Let in or refuse, and note who it is."""
        g.user = self.name()
        if g.user is None:
            abort(401)

    def token(self) -> dict[str, str]:
        """A header with a fresh token."""
        with self.app.test_request_context(environ_base={"REMOTE_ADDR": "127.0.0.1"}):
            return {HEADER: self.idempotency.token()}

    def pay(self, name: str | None, value: dict[str, str]) -> Any:
        return self.app.test_client().post("/pay", json={"sum": 1}, headers={**value, **self.credentials(name)})

    def credentials(self, name: str | None) -> dict[str, str]:
        return {} if name is None else {"X-User": name}


Steps = tuple[Callable[[], Any], Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]


def nothing(*_: Any) -> None:
    """No step of this arrangement."""


def as_it_is(view: Any) -> Any:
    return view


def nobody_asks(door: Door) -> Steps:
    return nothing, nothing, as_it_is, nothing


def hook_before(door: Door) -> Steps:
    return lambda: door.app.before_request(door.check), nothing, as_it_is, nothing


def hook_after(door: Door) -> Steps:
    return nothing, lambda: door.app.before_request(door.check), as_it_is, nothing


def on_the_blueprint(door: Door) -> Steps:
    return nothing, nothing, as_it_is, lambda api: api.before_request(door.check)


def decorator_above(door: Door) -> Steps:
    def checked(view: Any) -> Any:
        @wraps(view)
        def wrapper(*args: Any, **arguments: Any) -> Any:
            door.check()
            return view(*args, **arguments)

        return wrapper

    return nothing, nothing, checked, nothing


def decorator_that_hides_its_function(door: Door) -> Steps:
    def checked(view: Any) -> Any:
        def wrapper(**arguments: Any) -> Any:
            door.check()
            return view(**arguments)

        return wrapper

    return nothing, nothing, checked, nothing


def outer_middleware(door: Door) -> Steps:
    def wrap() -> None:
        inner = door.app.wsgi_app

        def middleware(environ: Any, start_response: Any) -> Any:
            name = WerkzeugRequest(environ).headers.get("X-User")
            if name is None or name in door.revoked:
                return WerkzeugResponse("who are you?", 401)(environ, start_response)
            environ["REMOTE_USER"] = name
            return inner(environ, start_response)

        door.app.wsgi_app = middleware  # type: ignore[method-assign]

    return nothing, wrap, as_it_is, nothing


def flask_login(door: Door) -> Steps:
    def init() -> None:
        manager = LoginManager(door.app)
        manager.request_loader(lambda _: User(name) if (name := door.name()) is not None else None)

    return init, nothing, login_required, nothing


def flask_login_after(door: Door) -> Steps:
    init, _, around, _ = flask_login(door)
    return nothing, init, around, nothing


def httpauth(door: Door) -> Steps:
    auth = HTTPBasicAuth()
    auth.verify_password(lambda name, password: name if name and name not in door.revoked else None)
    door.credentials = lambda name: {  # type: ignore[method-assign]
        "Authorization": "Basic " + base64.b64encode(f"{name or ''}:pw".encode()).decode()
    }
    return nothing, nothing, auth.login_required, nothing


def jwt_extended(door: Door) -> Steps:
    def init() -> None:
        manager = JWTManager(door.app)
        manager.token_in_blocklist_loader(lambda _, claims: claims["sub"] in door.revoked)

    door.credentials = lambda name: bearer(token_for(door.app, name)) if name else {}  # type: ignore[method-assign]
    return init, nothing, jwt_required(), nothing


def jwt_extended_in_a_hook(door: Door) -> Steps:
    init, _, _, _ = jwt_extended(door)

    def verify() -> None:
        verify_jwt_in_request()

    return init, lambda: door.app.before_request(verify), as_it_is, nothing


def pyjwt_in_a_hook(door: Door) -> Steps:
    """Home-made: the app checks the bearer token by itself and notes its subject."""
    init, _, _, _ = jwt_extended(door)

    def verify() -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            g.user = jwt.decode(token, door.app.config["JWT_SECRET_KEY"], ["HS256"])["sub"]
        except jwt.InvalidTokenError:
            abort(401)
        if g.user in door.revoked:
            abort(401)

    return init, lambda: door.app.before_request(verify), as_it_is, nothing


ARRANGEMENTS: dict[str, Callable[[Door], Steps]] = {
    "hook before init_app": hook_before,
    "hook after init_app": hook_after,
    "blueprint's hook": on_the_blueprint,
    "decorator above": decorator_above,
    "decorator that hides its function": decorator_that_hides_its_function,
    "outer middleware": outer_middleware,
    "Flask-Login before": flask_login,
    "Flask-Login after": flask_login_after,
    "Flask-HTTPAuth": httpauth,
    "Flask-JWT-Extended": jwt_extended,
    "Flask-JWT-Extended in a hook": jwt_extended_in_a_hook,
    "PyJWT in a hook": pyjwt_in_a_hook,
}
BY_AN_EXTENSION = [name for name in ARRANGEMENTS if name.startswith("Flask")]


def principal_of(arrangement: str) -> dict[str, Any]:
    """The option that a view needs: none where an extension says who it is."""
    if arrangement in BY_AN_EXTENSION:
        return {}
    if arrangement == "outer middleware":
        return {"principal": lambda: request.environ["REMOTE_USER"]}
    return {"principal": lambda: g.user}
