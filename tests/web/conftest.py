"""Stores and policies in turn, for tests whose outcome must not depend on them."""

from __future__ import annotations

from typing import Any

import pytest

from flask_idempotent.stores.memory import MemoryStore


@pytest.fixture(params=["memory", "valkey"])
def any_store(request: pytest.FixtureRequest) -> Any:
    """What can be handed to ``make_app``: memory, and a real Valkey."""
    return MemoryStore() if request.param == "memory" else request.getfixturevalue("valkey").url


@pytest.fixture(params=["replay", "reject"])
def policy(request: pytest.FixtureRequest) -> str:
    """The policies under which a case about duplicates must hold."""
    return str(request.param)
