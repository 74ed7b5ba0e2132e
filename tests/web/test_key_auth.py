"""Whoever checks who is asking, and wherever: the check comes before the replay, and what it found is the principal."""

from __future__ import annotations

from typing import Any

import jwt
import pytest
from flask import session

from flask_idempotent import ResponseUnavailable
from tests.apps.arrangements import ARRANGEMENTS, KEY, SECRET, Door, principal_of
from tests.apps.who import FORGER, bearer, token_for
from tests.helpers import REPLAYED, assert_refused, assert_repeated


def assert_refused_first(response: Any) -> None:
    assert response.status_code == 401
    assert SECRET not in response.text
    assert REPLAYED not in response.headers


@pytest.mark.case("S6", "S8", "S24", "WIRE-10")
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("door", ["token", "key"])
def test_in_every_arrangement_the_check_comes_before_the_replay(arrangement: str, door: str) -> None:
    bank = Door(arrangement, **principal_of(arrangement))
    value = bank.token() if door == "token" else KEY

    def pay(name: str | None) -> Any:
        return bank.pay(name, value)

    assert_refused_first(pay(None))
    first = pay("ann")
    assert (first.status_code, first.get_json()) == (201, {"secret": SECRET, "number": 1})
    assert_repeated(pay("ann"), first)

    assert_refused_first(pay(None))
    of_bob = pay("bob")
    if door == "token":
        assert_refused(of_bob, "duplicate")
        assert SECRET not in of_bob.text
    else:
        assert (of_bob.get_json(), REPLAYED in of_bob.headers) == ({"secret": SECRET, "number": 2}, False)

    bank.revoked.add("ann")
    assert_refused_first(pay("ann"))
    bank.revoked.clear()
    assert_repeated(pay("ann"), first)
    assert len(bank.ledger) == (1 if door == "token" else 2)


@pytest.mark.case("S8", "S24")
@pytest.mark.parametrize("arrangement", [name for name in ARRANGEMENTS if "JWT" in name])
def test_a_renewed_jwt_gets_the_replay_and_a_forged_one_sees_nothing(arrangement: str) -> None:
    door = Door(arrangement, **principal_of(arrangement))
    client = door.app.test_client()

    def pay(token: str) -> Any:
        return client.post("/pay", json={"sum": 1}, headers={**KEY, **bearer(token)})

    token, renewed = token_for(door.app, "ann"), token_for(door.app, "ann")
    claims = jwt.decode(token, options={"verify_signature": False})
    unsigned, forged = jwt.encode(claims, None, "none"), jwt.encode(claims, FORGER, "HS256")

    first = pay(token)

    assert token != renewed
    assert_repeated(pay(renewed), first)
    for other in (forged, unsigned, token[:-4], "", "x.y.z"):
        refused = pay(other)
        assert refused.status_code in (401, 422)
        assert SECRET not in refused.text
        assert REPLAYED not in refused.headers
    assert_repeated(pay(token), first)
    assert len(door.ledger) == 1


@pytest.mark.case("S8", "REPLAY-02", "FORM-03")
@pytest.mark.parametrize("repeater", ["the same browser", "another browser", "nobody"])
@pytest.mark.parametrize("policy", ["replay", "reject", "ignore", "callable"])
def test_an_answer_to_a_session_that_nobody_explained_is_shown_to_nobody_under_any_policy(
    repeater: str, policy: str
) -> None:
    def own(error: Any) -> Any:
        with pytest.raises(ResponseUnavailable):
            error.replay()
        return f"not for you: {error.reason}", 403

    door = Door("no check", on_duplicate=own if policy == "callable" else policy)
    door.app.add_url_rule("/in/<name>", "in", lambda name: session.update(user_id=name) or "in", methods=["POST"])
    ann, bob, nobody = (door.app.test_client() for _ in range(3))
    for client, name in ((ann, "ann"), (bob, "bob")):
        client.post(f"/in/{name}")

    first = ann.post("/pay", json={"sum": 1}, headers=KEY)
    who = {"the same browser": ann, "another browser": bob, "nobody": nobody}[repeater]
    again = who.post("/pay", json={"sum": 1}, headers=KEY)

    assert first.status_code == 201
    assert SECRET not in again.text
    assert REPLAYED not in again.headers
    if policy == "callable":
        assert (again.status_code, again.text) == (403, "not for you: duplicate")
    elif policy == "ignore":
        assert (again.status_code, again.data) == (204, b"")
    else:
        assert_refused(again, "duplicate")
    assert len(door.ledger) == 1
