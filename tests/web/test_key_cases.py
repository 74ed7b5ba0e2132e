"""Keys that clients make: absent, used again for something else, spelled in other ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import request

from flask_idempotent import idempotent
from tests.apps.till import KEY_HEADER, Till, assert_ran
from tests.helpers import assert_refused, assert_repeated, make_app

Counted = tuple[Any, Callable[[], int]]


# --- absent ------------------------------------------------------------------------------------------------------


@pytest.mark.case("S8", "KEY-01")
def test_without_a_key_an_optional_view_runs_each_time_and_nothing_is_stored(counted: Counted, policy: str) -> None:
    store, count = counted
    till = Till(store, ON_DUPLICATE=policy).add(required=False)
    for number in (1, 2):
        assert_ran(till.send(json={"amount": 1}), number)
    assert count() == 0
    first = till.send("k", json={"amount": 1})
    assert_ran(first, 3)
    assert_repeated(till.send("k", json={"amount": 1}), first, policy)
    assert (len(till.ledger), count()) == (3, 1)


@pytest.mark.case("S8", "KEY-01")
def test_without_a_key_that_is_required_nothing_runs_and_the_header_is_named(counted: Counted) -> None:
    store, count = counted
    till = Till(store).add()
    for _ in range(2):
        refused = till.send(json={"amount": 1})
        assert_refused(refused, "key_missing", 400)
        assert KEY_HEADER in refused.get_json()["detail"]
    assert (len(till.ledger), count()) == (0, 0)


# --- the same key for something else -----------------------------------------------------------------------------


@pytest.mark.case("S8", "KEY-02")
def test_the_same_key_with_another_body_is_refused_and_shows_nothing(any_store: Any, policy: str) -> None:
    app = make_app(any_store, ON_DUPLICATE=policy)
    booked = []

    @app.post("/pay")
    @idempotent(source="header")
    def pay() -> tuple[dict[str, Any], int]:
        booked.append(request.get_json()["amount"])
        return {"receipt": "IBAN-4711"}, 201

    client = app.test_client()

    def send(amount: int) -> Any:
        return client.post("/pay", json={"amount": amount}, headers={KEY_HEADER: "K"})

    first, other, again = send(200), send(500), send(200)
    assert first.status_code == 201
    assert_refused(other, "key_reused", 422)
    assert "IBAN" not in other.text
    assert "IBAN" not in str(other.headers)
    assert_repeated(again, first, policy)
    assert booked == [200]


@pytest.mark.case("S8", "S9", "KEY-03")
def test_the_same_key_on_another_endpoint_or_verb_is_another_key(any_store: Any, policy: str) -> None:
    till = Till(any_store, ON_DUPLICATE=policy)
    till.add("/orders", "POST", "PUT").add("/refunds", "POST", "PATCH", "DELETE")
    asked = [
        ("/orders", "POST"),
        ("/refunds", "POST"),
        ("/orders", "PUT"),
        ("/refunds", "PATCH"),
        ("/refunds", "DELETE"),
    ]
    answers = [till.send("K", path, method) for path, method in asked]
    assert till.ledger.entries == [f"{method} {path}" for path, method in asked]
    for (path, method), answer in zip(asked, answers, strict=True):
        assert answer.get_json()["path"] == path
        assert_repeated(till.send("K", path, method), answer, policy)
    assert len(till.ledger) == len(asked)


@pytest.mark.case("S8", "KEY-04")
def test_another_path_is_another_key_and_another_query_is_other_content(any_store: Any, policy: str) -> None:
    """The rule: the query counts as pairs sorted by name; of one name the order counts."""
    till = Till(any_store, ON_DUPLICATE=policy).add("/pay/<number>")

    def pay(path: str) -> Any:
        return till.send("K", f"/pay/{path}", json={"amount": 1})

    first = pay("1?cur=eur&note=a&note=b")
    assert_ran(first, 1)
    assert_ran(pay("2?cur=eur&note=a&note=b"), 2)
    for other in ("1?cur=usd&note=a&note=b", "1?cur=eur&note=b&note=a", "1?cur=eur&note=a", "1"):
        assert_refused(pay(other), "key_reused", 422)
    for reordered in ("1?note=a&note=b&cur=eur", "1?note=a&cur=eur&note=b", "1?n%6Fte=a&cur=eur&note=%62"):
        assert_repeated(pay(reordered), first, policy)
    assert len(till.ledger) == 2


SENT = '{"name":"café","lines":[1,2],"amount":1,"note":null}'
EQUAL = {
    "members": '{"note":null,"amount":1,"lines":[1,2],"name":"café"}',
    "blanks": ' { "name" : "café", "lines": [ 1,\n\t2 ], "amount": 1, "note": null } ',
    "escapes": '{"n\\u0061me":"caf\\u00e9","lines":[1,2],"amount":1,"note":null}',
    "numbers": '{"name":"café","lines":[1.0,2e0],"amount":1.00,"note":null}',
}
OTHER = {
    "the array's order": '{"name":"café","lines":[2,1],"amount":1,"note":null}',
    "text for a number": '{"name":"café","lines":[1,2],"amount":"1","note":null}',
    "absent for null": '{"name":"café","lines":[1,2],"amount":1}',
    "true for 1": '{"name":"café","lines":[1,2],"amount":true,"note":null}',
    "a tiny bit more": '{"name":"café","lines":[1,2],"amount":1.0000000000000000001,"note":null}',
    "another form of the letter": '{"name":"cafe\u0301","lines":[1,2],"amount":1,"note":null}',
}


@pytest.mark.case("S8", "KEY-05")
def test_json_counts_by_its_meaning(any_store: Any, policy: str) -> None:
    till = Till(any_store, ON_DUPLICATE=policy).add()
    first = till.send("K", data=SENT, content_type="application/json")
    assert_ran(first, 1)
    for body in EQUAL.values():
        assert_repeated(till.send("K", data=body, content_type="application/json"), first, policy)
    for body in OTHER.values():
        assert_refused(till.send("K", data=body, content_type="application/json"), "key_reused", 422)
    assert len(till.ledger) == 1


@pytest.mark.case("S8", "S24", "KEY-06")
@pytest.mark.parametrize(
    "options",
    [
        {"ignore": ("sent_at", "attempt")},
        {"fingerprint": ("amount",)},
        {"fingerprint": lambda: request.get_json()["amount"]},
    ],
    ids=["left out", "named", "callable"],
)
def test_fields_that_change_on_every_attempt_can_be_left_out(any_store: Any, policy: str, options: Any) -> None:
    till = Till(any_store, ON_DUPLICATE=policy).add(**options)
    first = till.send("K", json={"amount": 200, "sent_at": "12:00", "attempt": 1})
    assert_ran(first, 1)
    assert_repeated(till.send("K", json={"amount": 200, "sent_at": "12:01", "attempt": 2}), first, policy)
    assert_refused(till.send("K", json={"amount": 500, "sent_at": "12:00", "attempt": 1}), "key_reused", 422)
    assert len(till.ledger) == 1


# --- spelling ----------------------------------------------------------------------------------------------------

ACCEPTED = ["x" * 255, "*", ":", "{a}", "../", "a;b", "it's", "0", "a\\b", '"a b"', '"a,b"', '"' + "x" * 255 + '"']
REFUSED = ["x" * 256, '"' + "x" * 256 + '"', "x" * 10_240, "😀" * 128, '"' + "😀" * 128 + '"', "ключ", "a\tb", '"a\tb"']
REFUSED += ["a\x7fb", "a\x00b", '"a\x00b"', "a b", "a,b", "\x01", '"a\nb"', "a\r\nb"]
ABSENT = ["", " ", "  \t "]


@pytest.mark.case("S8", "KEY-07")
def test_one_rule_for_length_and_alphabet_whatever_the_store(counted: Counted) -> None:
    store, count = counted
    till = Till(store).add()
    for key in REFUSED:
        assert_refused(till.send(key), "key_invalid", 400)
    for key in ABSENT:
        assert_refused(till.send(key), "key_missing", 400)
    assert (len(till.ledger), count()) == (0, 0)
    different = ACCEPTED[:-1]  # the last is the first one, quoted
    firsts = [till.send(key) for key in different]
    assert [answer.get_json()["number"] for answer in firsts] == list(range(1, len(different) + 1))
    for key, first in zip(ACCEPTED, [*firsts, firsts[0]], strict=True):
        assert_repeated(till.send(key), first)
    assert len(till.ledger) == count() == len(different)


@pytest.mark.case("S8", "KEY-11")
@pytest.mark.parametrize("first_line", ["abc", '"abc"'])
def test_quoted_and_bare_are_one_key(any_store: Any, policy: str, first_line: str) -> None:
    till = Till(any_store, ON_DUPLICATE=policy).add()
    first = till.send(first_line)
    assert_ran(first, 1)
    for line in ("abc", '"abc"', '"abc"', ' "abc" ', '"abc";v=1', "\tabc"):
        assert_repeated(till.send(line), first, policy)
    for line in ('"abc', 'abc"', '"', "'abc'", '"abc""', '"abc" "abc"'):
        assert_refused(till.send(line), "key_invalid", 400)
    for number, line in enumerate(("ABC", '"abc "', '"\\"abc\\""'), start=2):
        assert_ran(till.send(line), number)
