"""Helpers for tests: a clock that is moved by hand, and the contract that every store keeps.

A store of your own is shown to be right by a class that inherits the contract::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            return MyStore(...)

        def advance(self, store, key, seconds):
            store.clock.advance(seconds)
"""

from __future__ import annotations

from .clock import FakeClock
from .contract import AdminStoreContract, StoreContract

__all__ = ["AdminStoreContract", "FakeClock", "StoreContract"]
