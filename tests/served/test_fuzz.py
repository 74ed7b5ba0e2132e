"""The campaign of random requests, a slice of it; and what it finds in a shop that nobody protects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns import fuzz
from tests.servers import RedisServer

pytestmark = [pytest.mark.service("valkey91"), pytest.mark.slow]


@pytest.mark.case("S8", "S19", "BODY-08")
@pytest.mark.timeout(120)
def test_whatever_is_sent_nothing_breaks_and_nothing_is_done_twice(tmp_path: Path, valkey: RedisServer) -> None:
    fuzzer = fuzz.play(tmp_path, valkey.url, 0, 20261130, 700)

    assert fuzzer.judge.complaints == []
    seen = fuzzer.judge.seen
    assert {"400 key_invalid", "400 key_missing", "400 token_missing", "422 key_reused", "200 replayed"} <= set(seen)
    assert seen["effects: api"] > 5
    assert seen["effects: callback"] > 5
    assert seen["effects: forms"] > 20


@pytest.mark.timeout(120)
def test_a_shop_without_protection_is_found_out(tmp_path: Path, valkey: RedisServer) -> None:
    fuzzer = fuzz.play(tmp_path, valkey.url, 0, 1, 80, batch=50, enabled=False)

    assert any("was done as" in complaint for complaint in fuzzer.judge.complaints)
    assert any("distinct operations" in complaint for complaint in fuzzer.judge.complaints)
