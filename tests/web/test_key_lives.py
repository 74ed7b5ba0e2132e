"""Where no key counts, and how long one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flask_idempotent import idempotent
from tests.apps.till import KEY_HEADER, Till, assert_ran
from tests.helpers import FIELD, assert_refused, assert_repeated, make_app, token_of

Counted = tuple[Any, Callable[[], int]]
Timed = tuple[Any, Callable[[float], None]]


@pytest.mark.case("S8", "KEY-08")
def test_safe_methods_need_no_key_and_use_none_up(counted: Counted) -> None:
    store, count = counted
    till = Till(store).add("/orders", "GET", "POST")
    till.add("/rates", "GET", "OPTIONS", "POST")  # its own answer to OPTIONS, too
    seen = [till.send(key, method="GET").get_json()["number"] for key in ("K", "K", "a,b", None)]
    assert seen == [1, 2, 3, 4]
    assert [till.send("K", method=method).status_code for method in ("HEAD", "OPTIONS")] == [201, 200]
    assert_ran(till.send("K", "/rates", "OPTIONS"), 6)
    assert (len(till.ledger), count()) == (6, 0)
    first = till.send("K")
    assert_ran(first, 7)
    assert_repeated(till.send("K"), first)
    assert_ran(till.send("K", method="GET"), 8)


@pytest.mark.case("S8", "KEY-09")
def test_a_record_lives_as_long_as_was_said_and_replays_do_not_prolong_it(timed: Timed, policy: str) -> None:
    store, move = timed
    till = Till(store, ON_DUPLICATE=policy).add(ttl=200).add("/day")
    first, day = till.send("K"), till.send("K", "/day")
    for _ in range(3):  # at 60, 120 and 180
        move(60)
        assert_repeated(till.send("K"), first, policy)
    move(60)  # 60 after the last replay, 240 after the first run
    second = till.send("K")
    assert_ran(second, 3)
    assert_repeated(till.send("K"), second, policy)
    move(86_400 - 300)  # 86,340 after the first run
    assert_repeated(till.send("K", "/day"), day, policy)
    move(120)
    assert_ran(till.send("K", "/day"), 4)


@pytest.mark.case("S8", "KEY-09")
def test_the_life_counts_from_completion(timed: Timed) -> None:
    store, move = timed
    app = make_app(store)
    runs = []

    @app.post("/slow")
    @idempotent(source="header", ttl=700)
    def slow() -> tuple[str, int]:
        runs.append(1)
        move(250)
        return f"run {len(runs)}", 201

    client = app.test_client()
    first = client.post("/slow", headers={KEY_HEADER: "K"})
    move(600)  # 850 after its beginning
    assert_repeated(client.post("/slow", headers={KEY_HEADER: "K"}), first)
    move(200)
    assert client.post("/slow", headers={KEY_HEADER: "K"}).text == "run 2"


@pytest.mark.case("S8", "KEY-10")
def test_a_key_that_nobody_asked_for_decides_nothing(counted: Counted, policy: str) -> None:
    store, count = counted
    till = Till(store, ON_DUPLICATE=policy).add_unmarked().add("/form-order", source="token").add()
    for number in (1, 2):
        assert_ran(till.send("K", "/plain", data={"amount": "1"}), number)
    assert count() == 0
    for number in (3, 4):  # two tokens, one key
        data = {FIELD: token_of(till.client), "amount": "1"}
        first = till.send("K", "/form-order", data=data)
        assert_ran(first, number)
        assert_repeated(till.send("another", "/form-order", data=data), first, policy)
    assert_refused(till.send("K", "/form-order", data={"amount": "1"}), "token_missing", 400)
    first = till.send("K", data={"amount": "1"})
    assert_ran(first, 5)
    assert_repeated(till.send("K", data={"amount": "1"}), first, policy)
    assert len(till.ledger) == 5
