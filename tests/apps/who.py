"""An app that tells whom it takes the one who asks for, and how one says who one is."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from flask import Flask, request
from flask_jwt_extended import create_access_token
from flask_login import LoginManager, UserMixin, login_user

from flask_idempotent.web.principals import namespace, verified_principal, viewer

FORGER = "another secret, thirty-two bytes long"


def new_app() -> Flask:
    app = Flask("tests.principals")
    app.config.update(
        TESTING=True, SECRET_KEY="a secret of the tests", JWT_SECRET_KEY="thirty-two bytes at the least, so more"
    )
    app.add_url_rule("/who", "who", who)
    return app


def who() -> dict[str, Any]:
    """The view of every app here: what we make of the one who asks."""
    verified = verified_principal(None)
    return {
        "verified": verified,
        "viewer": viewer(request, verified),
        "namespace": namespace(request, verified),
    }


def asked(client: Any, headers: Any = None, path: str = "/who") -> Any:
    response = client.get(path, headers=headers)
    assert response.status_code == 200, response.text
    return response.get_json()


def read_the_session(response: Any) -> bool:
    """Flask names the cookie where somebody has read the session."""
    return "Cookie" in response.headers.get("Vary", "")


def authorization(value: str) -> dict[str, str]:
    return {"Authorization": value}


def basic(user: str | bytes, password: str | bytes = "pw", encoding: str = "utf-8") -> dict[str, str]:
    parts = [part if isinstance(part, bytes) else part.encode(encoding) for part in (user, password)]
    return authorization("Basic " + base64.b64encode(b":".join(parts)).decode())


def bearer(token: str) -> dict[str, str]:
    return authorization(f"Bearer {token}")


def jwt_of(claims: Any, secret: str = FORGER) -> str:
    """A signed token with any payload, also such as no library writes."""
    text = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    head, body = (base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (b'{"alg":"HS256"}', text))
    signature = hashlib.sha256(f"{secret}{head}{body}".encode()).hexdigest()
    return f"{head}.{body}.{signature}"


class User(UserMixin):
    def __init__(self, name: Any) -> None:
        self.id = name


def login_routes(app: Flask, load: Any = User) -> None:
    LoginManager(app).user_loader(load)

    @app.post("/login/<name>")
    def login(name: str) -> str:
        login_user(User(name), remember=True)
        return "in"


def login_app(load: Any = User) -> Flask:
    app = new_app()
    login_routes(app, load)
    return app


def logged_in(app: Flask, name: str) -> Any:
    client = app.test_client()
    client.post(f"/login/{name}")
    return client


def token_for(app: Flask, identity: Any, **claims: Any) -> str:
    with app.test_request_context():
        return create_access_token(identity, additional_claims=claims)
