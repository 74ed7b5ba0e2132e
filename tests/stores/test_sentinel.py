"""A store behind sentinels, when another server becomes the primary."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flask_idempotent.core.errors import StoreUnavailable
from flask_idempotent.core.record import Holder, Verdict
from flask_idempotent.stores import from_object
from tests.sentinels import SentinelGroup
from tests.stores.redis_steps import claim, complete, issue

KEY = "idempotency:followed"


@pytest.fixture
def own_sentinels(tmp_path: Path) -> Iterator[SentinelGroup]:
    """A group of the test's own, to be failed over."""
    group = SentinelGroup(tmp_path).start()
    yield group
    group.stop()


@pytest.mark.slow
def test_the_same_client_follows_a_failover(own_sentinels: SentinelGroup) -> None:
    client = own_sentinels.client()
    store = from_object(client)
    issue(store, KEY)
    won = claim(store, KEY, must_exist=True)
    assert own_sentinels.primary.control.wait(1, 10_000) == 1  # the replica has it
    own_sentinels.fail_over()
    assert own_sentinels.replica.control.info("replication")["role"] == "master"
    refused = _as_soon_as_it_answers(store)
    assert isinstance(refused, Holder)
    assert (refused.verdict, refused.record) == (Verdict.RUNNING, won.record)
    assert complete(store, won)
    assert own_sentinels.replica.control.exists(KEY)
    assert claim(store, KEY, owner="ben").verdict is Verdict.DONE
    client.close()


def _as_soon_as_it_answers(store: Any) -> Any:
    """What a duplicate is told. The first commands meet broken connections, and sentinels that are not sure yet."""
    end = time.monotonic() + 30
    while True:
        try:
            return claim(store, KEY, owner="ben", must_exist=True)
        except StoreUnavailable:
            assert time.monotonic() < end
            time.sleep(0.02)
