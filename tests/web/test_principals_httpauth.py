"""Who is asking, as Flask-HTTPAuth has verified it: Basic, tokens, either, Digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import pytest
from flask import Flask
from flask_httpauth import HTTPBasicAuth, HTTPDigestAuth, HTTPTokenAuth, MultiAuth
from werkzeug.http import parse_dict_header

from tests.apps.who import (
    asked,
    authorization,
    basic,
    bearer,
    jwt_of,
    new_app,
    who,
)


@dataclass
class Account:
    id: Any


class Merchant(Account): ...


class Nameless:
    @property
    def id(self) -> Any:
        raise LookupError("detached")


def http_app(user: Any = None, *, optional: bool = False) -> Flask:
    """Basic, token, and either, each by way of a path; ``user`` makes what the callbacks return."""
    app, made = new_app(), user or (lambda name: name)
    by_name, by_token, by_key = HTTPBasicAuth(), HTTPTokenAuth(), HTTPTokenAuth(header="X-API-Key")

    @by_name.verify_password
    def verify(name: str, password: str) -> Any:
        return made(name) if password == "pw" else None

    @by_token.verify_token
    @by_key.verify_token
    def verify_token(token: str) -> Any:
        return made(token.partition("-")[0]) if token.endswith("-good") else None

    for path, auth in {"basic": by_name, "token": by_token, "either": MultiAuth(by_key, by_name)}.items():
        app.add_url_rule(f"/{path}", path, auth.login_required(optional=optional or None)(who))
    return app


def test_the_user_whom_httpauth_let_in_is_the_principal() -> None:
    client = http_app().test_client()
    ann = asked(client, basic("ann"), "/basic")
    assert ann["verified"] == ann["viewer"] == ann["namespace"] is not None
    assert asked(client, basic("ann"), "/basic") == ann
    assert asked(client, bearer("ann-1-good"), "/token") == ann
    assert asked(client, bearer("ann-2-good"), "/token") == ann
    assert asked(client, {"X-API-Key": "ann-3-good"}, "/either") == ann
    assert asked(client, basic("bob"), "/basic")["verified"] not in (None, ann["verified"])


def test_where_httpauth_is_told_true_the_name_is_the_one_it_verified() -> None:
    told_true, told_names = http_app(lambda name: True).test_client(), http_app().test_client()
    assert asked(told_true, basic("ann"), "/basic") == asked(told_names, basic("ann"), "/basic")


@pytest.mark.parametrize(
    ("path", "headers"), [("/basic", basic("ann", "wrong")), ("/token", bearer("ann-bad")), ("/basic", {})]
)
@pytest.mark.parametrize("refusing", [None, False])
def test_whom_httpauth_lets_pass_unverified_is_nobody(path: str, headers: dict[str, str], refusing: Any) -> None:
    app = new_app()
    auth: Any = HTTPBasicAuth() if path == "/basic" else HTTPTokenAuth()
    getattr(auth, "verify_password" if path == "/basic" else "verify_token")(lambda *given: refusing)
    app.add_url_rule(path, "view", auth.login_required(optional=True)(who))
    assert asked(app.test_client(), headers, path)["verified"] is None


@pytest.mark.parametrize("nobody", ["", 0], ids=repr)
def test_an_empty_user_is_nobody(nobody: Any) -> None:
    client = http_app(lambda name: nobody, optional=True).test_client()
    assert asked(client, basic("ann"), "/basic")["verified"] is None


def test_a_user_object_is_known_by_its_kind_and_id_whatever_it_came_with() -> None:
    accounts, merchants = http_app(Account).test_client(), http_app(Merchant).test_client()
    ann = asked(accounts, basic("ann"), "/basic")
    assert ann["verified"] is not None
    assert asked(accounts, bearer("ann-1-good"), "/token") == asked(accounts, bearer("ann-2-good"), "/token") == ann
    others = [asked(accounts, basic("bob"), "/basic"), asked(merchants, basic("ann"), "/basic")]
    assert len({ann["verified"], *(other["verified"] for other in others)}) == 3


@pytest.mark.parametrize(
    "user",
    [lambda name: {"name": name}, lambda name: Nameless(), lambda name: Account(None)],
    ids=["dict", "broken", "no id"],
)
def test_a_user_object_without_an_id_is_known_by_the_exact_credentials(user: Any) -> None:
    client = http_app(user).test_client()
    ann = asked(client, basic("ann"), "/basic")
    token = asked(client, bearer("ann-1-good"), "/token")
    assert asked(client, basic("ann"), "/basic") == ann
    assert asked(client, bearer("ann-1-good"), "/token") == token
    found = {
        ann["verified"],
        token["verified"],
        asked(client, basic("bob"), "/basic")["verified"],
        asked(client, bearer("ann-2-good"), "/token")["verified"],
    }
    assert len(found) == 4
    assert None not in found


def test_the_user_in_a_header_that_was_not_verified_is_not_the_principal() -> None:
    client = http_app(lambda name: {"name": name}).test_client()
    victim = asked(client, basic("victim"), "/either")
    thief = asked(client, {"X-API-Key": "thief-good", **basic("victim", "guess")}, "/either")
    assert thief["verified"] != victim["verified"]
    assert thief["viewer"] != victim["viewer"]


def test_a_nameless_user_with_a_jwt_has_the_name_space_of_its_subject() -> None:
    app, auth = new_app(), HTTPTokenAuth()
    auth.verify_token(lambda token: {"claims": token.partition(".")[0]})
    app.add_url_rule("/jwt", "jwt", auth.login_required(who))
    client = app.test_client()
    first, renewed = (asked(client, bearer(jwt_of({"sub": "ann", "exp": exp})), "/jwt") for exp in (1, 2))
    assert first["namespace"] == renewed["namespace"]
    assert first["viewer"] != renewed["viewer"]


def digest_header(challenge: str, user: str, password: str, count: int) -> dict[str, str]:
    said = {name: str(value) for name, value in parse_dict_header(challenge.partition(" ")[2]).items()}
    ha1, ha2 = (
        hashlib.md5(text.encode()).hexdigest() for text in (f"{user}:{said['realm']}:{password}", "GET:/digest")
    )
    fields = {"nonce": said["nonce"], "nc": f"{count:08x}", "cnonce": f"c{count}", "qop": "auth"}
    response = hashlib.md5(":".join([ha1, *fields.values(), ha2]).encode()).hexdigest()
    fields |= {
        "username": user,
        "realm": said["realm"],
        "uri": "/digest",
        "opaque": said["opaque"],
        "response": response,
    }
    return authorization("Digest " + ", ".join(f'{name}="{value}"' for name, value in fields.items()))


def test_a_user_of_digest_is_the_same_in_every_request_though_no_header_is() -> None:
    app, auth = new_app(), HTTPDigestAuth()
    auth.get_password(lambda name: "pw")
    app.add_url_rule("/digest", "digest", auth.login_required(who))
    client = app.test_client()
    challenge = client.get("/digest").headers["WWW-Authenticate"]
    headers = [digest_header(challenge, "ann", "pw", count) for count in (1, 2)]
    assert headers[0] != headers[1]

    first, second = (asked(client, header, "/digest") for header in headers)
    unverified = [asked(client, header) for header in headers]

    assert first == second
    assert first["verified"] is not None
    assert [found["verified"] for found in unverified] == [None, None]
    assert unverified[0]["namespace"] == unverified[1]["namespace"] != first["namespace"]
    assert unverified[0]["viewer"] != unverified[1]["viewer"]
