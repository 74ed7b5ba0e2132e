"""Steps on a Redis store, and what lies under its keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask_idempotent.core.record import Claim, Holder, State, Verdict
from flask_idempotent.stores import from_url
from flask_idempotent.stores.redis import RedisStore

KEY = "idempotency:k"


def made(url: str) -> RedisStore:
    store = from_url(f"{url}?socket_timeout=10")  # the time-outs are not the subject here
    assert isinstance(store, RedisStore)
    return store


def issue(store: Any, key: str = KEY, ttl: float = 60) -> None:
    store.issue(key, binding="b", scene="", ttl=ttl)


def claim(store: Any, key: str = KEY, owner: str = "anna", **options: Any) -> Any:
    return store.claim(key, owner=owner, **{"binding": "b", "lease": 30, "ttl": 60, **options})


def complete(store: Any, won: Claim, result: bytes | None = b"answer") -> bool:
    settled: bool = store.settle(won, state=State.DONE, hold=0, ttl=60, result=result)
    return settled


def whole_life(store: Any, between: Callable[[], Any] = lambda: None, key: str = KEY) -> None:
    """A token from its issue to its replay, given back once; something happens between the steps."""
    for step in (lambda: issue(store, key), between):
        step()
    first = claim(store, key, must_exist=True)
    between()
    assert store.settle(first, state=State.ISSUED, hold=0, ttl=0)
    between()
    second = claim(store, key, "ben", must_exist=True)
    between()
    assert store.settle(second, state=State.RUNNING, hold=30, ttl=60)
    between()
    assert complete(store, second, b"\x00\xff answer")
    between()
    answer = claim(store, key, "carl", must_exist=True)
    assert isinstance(answer, Holder)
    assert answer.verdict is Verdict.DONE
    assert answer.record is not None
    assert answer.record.result == b"\x00\xff answer"
    between()
    assert store.get(key) == answer.record


def raw(store: RedisStore, key: str = KEY) -> bytes:
    packed: bytes = store._client.execute_command("GET", key, NEVER_DECODE=True)
    return packed


def put(store: RedisStore, packed: bytes) -> None:
    store._client.execute_command("SET", KEY, packed, "PX", 60_000)
