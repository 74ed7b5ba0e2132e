"""Stores and policies in turn, for tests whose outcome must not depend on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock


@pytest.fixture(params=["memory", "valkey"])
def any_store(request: pytest.FixtureRequest) -> Any:
    """What can be handed to ``make_app``: memory, and a real Valkey."""
    return MemoryStore() if request.param == "memory" else request.getfixturevalue("valkey").url


@pytest.fixture(params=["memory", "valkey"])
def counted(request: pytest.FixtureRequest) -> tuple[Any, Callable[[], int]]:
    """A store as in ``any_store``, and what counts the records in it."""
    if request.param == "memory":
        store = MemoryStore()
        return store, lambda: len(list(store.scan()))
    server = request.getfixturevalue("valkey")
    return server.url, lambda: int(server.control.dbsize())


@pytest.fixture(params=["memory", "valkey"])
def timed(request: pytest.FixtureRequest) -> tuple[Any, Callable[[float], None]]:
    """A store as in ``any_store``, and what moves its clock on, by seconds."""
    if request.param == "memory":
        clock = FakeClock()
        return MemoryStore(clock=clock), clock.advance
    server = request.getfixturevalue("clock_valkey")
    return server.url, server.move_clock


@pytest.fixture(params=["replay", "reject"])
def policy(request: pytest.FixtureRequest) -> str:
    """The policies under which a case about duplicates must hold."""
    return str(request.param)
