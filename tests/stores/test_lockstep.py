"""Random scripts on the machine, the memory store and Redis at once: every answer and every record must be the same.

``./dev campaign lockstep`` plays more of them, and counts what they reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from flask_idempotent.core.record import State
from tests.stores.lockstep.player import Player
from tests.stores.lockstep.scripts import Step, claim, issue, scripts, settle, wait
from tests.stores.lockstep.servers import STANDS_STILL, moved


def _service(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.service("faketime", name), id=name)


@pytest.fixture(scope="module")
def valkey91_player(server_folder: Path) -> Iterator[Player]:
    with moved("valkey91", server_folder) as server:
        yield Player("valkey91", server)


@pytest.fixture(scope="module", params=[*map(_service, STANDS_STILL), "fakeredis"])
def other_player(request: pytest.FixtureRequest, server_folder: Path) -> Iterator[Player]:
    with moved(request.param, server_folder) as server:
        yield Player(request.param, server)


@pytest.mark.service("faketime", "valkey91")
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=scripts)
def test_valkey(script: list[Step], valkey91_player: Player) -> None:
    valkey91_player.play(script)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=scripts)
def test_the_others(script: list[Step], other_player: Player) -> None:
    other_player.play(script)


@pytest.fixture(scope="module")
def exact_player(server_folder: Path) -> Iterator[Player]:
    """On a server whose time stands still."""
    with moved("valkey81", server_folder) as server:
        yield Player("valkey81", server)


@pytest.mark.service("faketime", "valkey81")
@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize(
    ("before", "moment", "after"),
    [
        pytest.param([claim("anna")], 10_000_000, [claim("ben")], id="the lease ends"),
        pytest.param([claim("anna", takeover=False)], 10_000_000, [claim("ben")], id="with restore off"),
        pytest.param([claim("anna")], 25_000_000, [claim("ben")], id="a claim's life ends"),
        pytest.param([claim("anna", consume=True)], 25_000_000, [claim("ben")], id="a consumed one's"),
        pytest.param([issue()], 25_000_000, [claim("ben", must_exist=True)], id="a token's"),
        pytest.param([issue()], 25_000_000, [issue(), claim("ben")], id="a token's, issued again"),
        pytest.param(
            [issue(), claim("anna", lease=20.0)], 25_000_000, [settle(State.ISSUED), claim("ben")], id="restored"
        ),
        pytest.param([claim("anna")], 25_000_000, [settle(State.DONE), claim("ben")], id="settled"),
        pytest.param([claim("anna"), settle(State.DONE)], 25_000_000, [claim("ben")], id="done"),
        pytest.param([claim("anna"), settle(State.FAILED)], 25_000_000, [claim("ben")], id="failed"),
        pytest.param([claim("anna"), settle(State.RUNNING)], 10_000_000, [claim("ben")], id="extended"),
    ],
)
def test_to_the_microsecond(before: list[Step], moment: int, after: list[Step], off: int, exact_player: Player) -> None:
    exact_player.play([*before, wait(moment + off), *after])
