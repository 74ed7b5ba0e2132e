"""Records of keys that are damaged, or that somebody else wrote."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from flask_idempotent.core.record import Claim, State
from flask_idempotent.stores.memory import MemoryStore
from tests.apps.answers import (
    DAMAGE,
    answering_by_key,
    assert_refused_as_damaged,
    damage_the_record,
    send_with_key,
)
from tests.helpers import assert_refused, events_logged
from tests.servers import RedisServer


@pytest.mark.case("REPLAY-09")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("stage", ["running", "done"])
def test_a_damaged_record_is_refused_and_never_run(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture, stage: str, damage: Callable[[bytes], bytes]
) -> None:
    def make() -> Any:
        if stage == "running":
            damage_the_record(redis_server, damage)
        return {"id": 7}, 201

    client, ledger = answering_by_key(make, redis_server.url)

    first = send_with_key(client)
    if stage == "done":
        damage_the_record(redis_server, damage)

    assert (first.status_code, first.get_json()) == (201, {"id": 7})
    for _ in range(2):
        caplog.clear()
        assert_refused_as_damaged(send_with_key(client), caplog)
    assert len(ledger) == 1


@pytest.mark.case("REPLAY-09")
@pytest.mark.parametrize(
    ("scene", "result", "reason", "status"),
    [
        ("another", b"", "token_foreign", 403),
        ("work", b"", "record_invalid", 409),
        ("work", b"\x02what another release keeps", "record_invalid", 409),
        ("work", b'{"status": 200, "body": "hello"}', "record_invalid", 409),
    ],
    ids=["another scene", "nothing", "another version", "another program"],
)
def test_a_record_that_somebody_else_wrote_is_refused_and_never_run(
    caplog: pytest.LogCaptureFixture, scene: str, result: bytes, reason: str, status: int
) -> None:
    store = MemoryStore()
    client, ledger = answering_by_key(lambda: "made", store)
    send_with_key(client)
    (key,) = store.scan()
    record = store.get(key)
    assert record is not None
    store.delete(key)
    claim = store.claim(key, owner="0" * 24, lease=300, ttl=300, scene=scene, fingerprint=record.fingerprint)
    assert isinstance(claim, Claim)
    store.settle(claim, state=State.DONE, hold=300, ttl=300, result=result)

    with caplog.at_level(logging.INFO, "flask_idempotent"):
        refused = send_with_key(client)

    assert_refused(refused, reason, status)
    levels = (logging.ERROR,) if reason == "record_invalid" else (logging.INFO, logging.WARNING)
    assert len(events_logged(caplog.records, *levels)) == 1
    assert len(ledger) == 1
