"""What each request costs the store: EVALSHA calls as a real Valkey counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from flask import Flask, current_app, render_template_string, request

from flask_idempotent import current_claim, idempotent
from tests.helpers import FIELD, HEADER, Ledger, assert_refused, assert_repeated, make_app, token_of, tokens_of
from tests.servers import RedisServer

pytestmark = pytest.mark.case("S4")


@pytest.fixture
def shop(valkey: RedisServer) -> Flask:
    app, ledger = make_app(valkey.url), Ledger()

    def work() -> Any:
        ledger.add()
        outcome = request.form.get("outcome", "")
        if outcome == "fails":
            raise ValueError(outcome)
        if outcome == "keeps":
            current_claim.keep()
        if outcome == "restores":
            current_claim.restore()
        return "rejected" if outcome == "rejected" else "done", 422 if outcome == "rejected" else 200

    for name, options in {
        "replay": {},
        "reject": {"on_duplicate": "reject"},
        "ignore": {"on_duplicate": "ignore"},
        "consume": {"consume": True},
        "session": {"binding": "session", "scene": "session"},
        "callable": {"binding": lambda: "x", "scene": "callable"},
        "key": {"source": "header"},
        "optional": {"source": "header", "required": False},
        "locked": {"source": "header", "lock": "form.name"},
        "soon": {"source": "header", "interval": 60},
        "both": {"source": "header", "lock": "form.name", "interval": 60},
        "alone": {"interval": 60},
    }.items():
        guarded = idempotent(**options)(work)
        app.add_url_rule(f"/{name}", name, guarded, methods=["GET", "POST", "PUT", "DELETE"])

    @app.get("/bare-page")
    def bare_page() -> str:
        return render_template_string("no token here")

    @app.get("/many")
    def many() -> str:
        return render_template_string("{% for _ in range(7) %}{{ idempotency_token() }}{% endfor %}")

    @app.get("/of/<scene>")
    def of(scene: str) -> str:
        return render_template_string("{{ idempotency_token(scene) }}", scene=scene)

    @app.post("/bare")
    def bare() -> str:
        return current_app.name

    return app


@pytest.fixture
def trips(shop: Flask, valkey: RedisServer) -> Callable[[], Any]:
    """A context manager that yields a list, to which it appends the number of round trips when it ends."""
    client = shop.test_client()  # every script is known to the server from here on
    client.post("/replay", data={FIELD: token_of(client)})

    @contextmanager
    def counted() -> Iterator[list[int]]:
        trips: list[int] = []
        before = everything(valkey)
        yield trips
        after = everything(valkey)
        assert set(after) - {"info"} <= set(before) | {"evalsha"}, "no other command than EVALSHA"
        trips.append(sum(calls - before.get(name, 0) for name, calls in after.items() if name != "info"))

    return counted


def everything(valkey: RedisServer) -> dict[str, int]:
    """Calls of each command by clients, without those that a script makes and those that open a connection."""
    stats = valkey.control.info("commandstats")
    inside = {"get", "set", "time", "del", "pexpireat", "getrange", "strlen"}
    opening = {"hello", "client|setinfo", "select", "client|maint_notifications"}
    counted = {name.removeprefix("cmdstat_"): int(entry["calls"]) for name, entry in stats.items()}
    return {name: calls for name, calls in counted.items() if name not in inside | opening}


def test_to_issue_is_one_for_each_token_and_nothing_beside(shop: Flask, trips: Any) -> None:
    client = shop.test_client()
    for path, tokens in {"/form": 1, "/many": 7, "/of/replay": 1, "/bare-page": 0, "/idempotency/token": 1}.items():
        with trips() as count:
            client.get(path)
        assert count == [tokens], path
    with trips() as count:
        client.head("/form")
        client.head("/idempotency/token")
        client.options("/form")
    assert count == [0]


@pytest.mark.parametrize("where", ["field", "header"])
@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    ("view", "outcome", "first", "again"),
    [
        ("replay", "", 2, 1),
        ("reject", "", 2, 1),
        ("ignore", "", 2, 1),
        ("consume", "", 1, 1),
        ("replay", "fails", 2, 2),
        ("replay", "rejected", 2, 2),
        ("replay", "restores", 2, 2),
        ("replay", "keeps", 3, 1),
        ("consume", "fails", 2, 2),
        ("consume", "keeps", 1, 1),
    ],
)
def test_a_guarded_request_is_a_claim_and_a_word_at_its_end(
    shop: Flask, trips: Any, view: str, outcome: str, first: int, again: int, verb: str, where: str
) -> None:
    client = shop.test_client()
    token = token_of(client)
    headers = {HEADER: token} if where == "header" else {}
    form = {"outcome": outcome, **({FIELD: token} if where == "field" else {})}

    for expected in (first, again):
        with trips() as count:
            client.open(f"/{view}", method=verb, data=form, headers=headers)
        assert count == [expected]


@pytest.mark.parametrize("scene", ["session", "callable"])
def test_what_is_claimed_in_the_wrapper_costs_the_same(shop: Flask, trips: Any, scene: str) -> None:
    client = shop.test_client()
    token = token_of(client, f"/of/{scene}")

    with trips() as count:
        first = client.post(f"/{scene}", data={FIELD: token})
    assert (first.status_code, count) == (200, [2])
    with trips() as count:
        assert_repeated(client.post(f"/{scene}", data={FIELD: token}), first)
    assert count == [1]


def test_a_refusal_costs_one_and_what_is_malformed_none(shop: Flask, trips: Any) -> None:
    client = shop.test_client()
    for sent, expected, reason, status in (
        ({FIELD: "0" * 32}, 1, "token_unknown", 409),
        ({FIELD: "x"}, 0, "token_invalid", 400),
        ({}, 0, "token_missing", 400),
    ):
        with trips() as count:
            assert_refused(client.post("/replay", data=sent), reason, status)
        assert count == [expected]


@pytest.mark.case("WIRE-02", "WIRE-03")
def test_what_is_not_guarded_costs_nothing(shop: Flask, trips: Any) -> None:
    client = shop.test_client()
    headers = {HEADER: token_of(client)}

    with trips() as count:
        assert client.post("/bare", headers=headers).status_code == 200
        assert client.post("/nowhere", headers=headers).status_code == 404
        assert client.patch("/replay", headers=headers).status_code == 405
        assert client.get("/replay", headers=headers).status_code == 200
        assert client.head("/replay", headers=headers).status_code == 200
        assert client.options("/replay", headers=headers).status_code == 200
        assert client.get("/bare-page").status_code == 200
    assert count == [0]
    with trips() as count:
        assert client.post("/replay", headers=headers).status_code == 200
    assert count == [2]


def test_a_page_of_many_tokens_fits_each_of_its_forms(shop: Flask) -> None:
    client = shop.test_client()
    tokens = tokens_of(client.get("/many").text)

    firsts = [client.post("/replay", data={FIELD: token}) for token in tokens]

    assert len(set(tokens)) == 7
    for token, first in zip(tokens, firsts, strict=True):
        assert_repeated(client.post("/replay", data={FIELD: token}), first)


@pytest.mark.case("S10", "S13", "S21")
@pytest.mark.parametrize(
    ("view", "outcome", "first", "again", "other"),
    [
        ("key", "", 2, 1, 2),
        ("key", "fails", 2, 2, 2),
        ("optional", "", 2, 1, 2),
        ("locked", "", 4, 1, 4),  # the lock is claimed and opened
        ("locked", "fails", 4, 4, 4),
        ("soon", "", 3, 1, 3),  # the interval passes by itself; who comes too soon gives the key back
        ("soon", "fails", 4, 4, 4),
        ("both", "", 5, 1, 5),
        ("alone", "", 1, 1, 1),
        ("alone", "fails", 2, 2, 2),
    ],
)
def test_by_key_a_lock_costs_two_more_and_an_interval_one(
    shop: Flask, trips: Any, view: str, outcome: str, first: int, again: int, other: int
) -> None:
    client = shop.test_client()
    for key, expected in (("k-1", first), ("k-1", again), ("k-2", other)):
        with trips() as count:
            client.post(f"/{view}", data={"outcome": outcome, "name": "x"}, headers={"Idempotency-Key": key})
        assert count == [expected], key


@pytest.mark.case("S10")
def test_a_key_that_is_missing_or_malformed_costs_none(shop: Flask, trips: Any) -> None:
    client = shop.test_client()
    with trips() as count:
        assert_refused(client.post("/key"), "key_missing", 400)
        assert_refused(client.post("/key", headers={"Idempotency-Key": "two words"}), "key_invalid", 400)
        assert client.post("/optional").status_code == 200
    assert count == [0]
