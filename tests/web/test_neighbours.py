"""Extensions beside ours, initialised before and after it: Flask-Compress and Flask-Limiter."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from flask import request
from flask_compress import Compress
from flask_limiter import Limiter

from flask_idempotent import idempotent
from tests.apps.neighbours import Neighbourhood, either_door, either_order
from tests.helpers import REPLAYED, assert_refused, assert_repeated

# -- Flask-Compress ------------------------------------------------------------------------------------------------

TEXT = "the same again and again " * 100


@pytest.mark.case("REPLAY-08", "REPLAY-10")
@either_order
@either_door
def test_with_compress_each_one_gets_the_encoding_that_it_asks_for(order: str, door: str) -> None:
    shop = Neighbourhood(order, Compress, COMPRESS_MIN_SIZE=10, COMPRESS_ALGORITHM=["br", "gzip"])
    shop.answer = lambda: (TEXT, 201, {"Content-Type": "text/html"})
    send = shop.submission(door)

    packed, plain, other = (send({"Accept-Encoding": wanted}) for wanted in ("gzip", "identity", "br"))
    again = send({"Accept-Encoding": "gzip"})

    assert [r.headers.getlist("Content-Encoding") for r in (packed, plain, other, again)] == [
        ["gzip"], [], ["br"], ["gzip"],
    ]  # fmt: skip
    assert [REPLAYED in r.headers for r in (packed, plain, other, again)] == [False, True, True, True]
    assert gzip.decompress(packed.data) == gzip.decompress(again.data) == plain.data == TEXT.encode()
    for response in (packed, plain, other, again):
        assert (response.status_code, response.mimetype) == (201, "text/html")
        assert response.headers.getlist("Content-Length") == [str(len(response.data))]
        assert response.headers.getlist("Vary") == ["Accept-Encoding"]
    assert len(shop.ledger) == 1


@pytest.mark.case("REPLAY-08", "REPLAY-06")
@either_order
def test_with_compress_an_answer_is_kept_or_not_by_its_own_size(order: str) -> None:
    shop = Neighbourhood(order, Compress, COMPRESS_MIN_SIZE=10, IDEMPOTENCY_MAX_RESULT=len(TEXT) - 1)
    shop.answer = lambda: (TEXT, 201, {"Content-Type": "text/html"})
    send = shop.submission("key")

    assert gzip.decompress(send({"Accept-Encoding": "gzip"}).data) == TEXT.encode()
    assert_refused(send({"Accept-Encoding": "gzip"}), "response_unavailable")
    assert len(shop.ledger) == 1


# -- Flask-Limiter -------------------------------------------------------------------------------------------------


def limited(order: str, limit: str, **options: Any) -> Neighbourhood:
    limiter = Limiter(lambda: "everybody", headers_enabled=True, storage_uri="memory://")
    return Neighbourhood(order, limiter.init_app, limiter.limit(limit, **options))


def left(response: Any) -> str:
    (remaining,) = response.headers.getlist("X-RateLimit-Remaining")
    return str(remaining)


@pytest.mark.case("REPLAY-08")
@either_order
@either_door
def test_with_limiter_a_replay_counts_and_its_numbers_are_those_of_now(order: str, door: str) -> None:
    shop = limited(order, "3 per hour")
    send = shop.submission(door)

    first, again, third, fourth = (send() for _ in range(4))

    assert_repeated(again, first)
    assert_repeated(third, first)
    assert [left(response) for response in (first, again, third)] == ["2", "1", "0"]
    assert fourth.status_code == 429
    assert REPLAYED not in fourth.headers
    assert len(shop.ledger) == 1


@pytest.mark.case("REPLAY-08")
@either_order
@either_door
def test_a_limit_on_what_is_done_can_leave_replays_out(order: str, door: str) -> None:
    shop = limited(order, "2 per hour", deduct_when=lambda response: REPLAYED not in response.headers)
    send, other = shop.submission(door), shop.submission("key")

    first, again, third = send(), send(), send()

    assert_repeated(again, first)
    assert_repeated(third, first)
    assert [left(response) for response in (first, again, third)] == ["1", "1", "1"]
    assert left(other({"Idempotency-Key": "another"})) == "0"
    assert len(shop.ledger) == 2


@pytest.mark.case("REPLAY-08", "FAIL-01")
@either_order
@either_door
@pytest.mark.parametrize("where", ["above the guard", "app-wide"])
def test_whom_the_limit_refuses_has_the_token_or_key_still(order: str, door: str, where: str) -> None:
    limiter = Limiter(
        lambda: request.headers.get("X-Who", "everybody"),
        default_limits=["1 per hour"] if where == "app-wide" else None,
        storage_uri="memory://",
    )
    outer = [limiter.limit("1 per hour")] if where == "above the guard" else []
    shop = Neighbourhood(order, limiter.init_app, *outer)
    send = shop.submission(door)
    assert shop.submission("key")({"Idempotency-Key": "another"}).status_code == 201
    assert len(shop.ledger) == 1

    assert send().status_code == 429
    assert len(shop.ledger) == 1
    limiter.reset()
    first = send()

    assert (first.status_code, first.get_json()) == (201, {"number": 2})
    limiter.reset()
    assert_repeated(send(), first)
    assert len(shop.ledger) == 2


@pytest.mark.case("REPLAY-08", "FAIL-01")
@either_order
@either_door
def test_a_limit_below_the_guard_counts_what_runs_and_no_replay(order: str, door: str) -> None:
    limiter = Limiter(lambda: "everybody", storage_uri="memory://")
    shop = Neighbourhood(order, limiter.init_app)

    @shop.app.post("/below")
    @idempotent(source=("token", "header"))
    @limiter.limit("1 per hour")
    def below() -> Any:
        return {"number": shop.ledger.add()}, 201

    send, other = shop.submission(door), shop.submission("key")

    first, *again = (send(path="/below") for _ in range(3))

    for response in again:
        assert_repeated(response, first)
    assert other({"Idempotency-Key": "another"}, path="/below").status_code == 429
    assert len(shop.ledger) == 1
    limiter.reset()
    assert other({"Idempotency-Key": "another"}, path="/below").get_json() == {"number": 2}
