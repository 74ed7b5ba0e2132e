"""Time for one record on a server whose clock cannot be moved: all its moments are put back instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flask_idempotent.core.record import MICROSECONDS
from flask_idempotent.stores.redis import layout


def age(client: Any, key: str, seconds: float) -> None:
    """Make the record under the key older; expired is deleted, as the server would."""
    packed = client.execute_command("GET", key, NEVER_DECODE=True)
    if packed is None:
        return
    record = layout.unpack(packed)
    by = round(seconds * MICROSECONDS)
    aged = replace(
        record,
        held_until=record.held_until and record.held_until - by,
        expires_at=record.expires_at - by,
        issued_until=record.issued_until and record.issued_until - by,
    )
    client.set(key, layout.pack(aged), pxat=-(-aged.expires_at // 1000))
