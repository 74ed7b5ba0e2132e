"""The machine with a dict around it."""

from __future__ import annotations

from typing import Any

from flask_idempotent.core import machine
from flask_idempotent.core.record import Absent, Claim, Holder, Record, microseconds


class Model:
    """A store in its simplest form. Whoever uses it says what time it is."""

    def __init__(self) -> None:
        self.now = 0
        self.records: dict[str, Record] = {}

    def issue(self, key: str, *, binding: str, scene: str, ttl: float) -> None:
        record = self.records.get(key)
        self.records[key] = machine.issue(record, self.now, binding=binding, scene=scene, ttl=microseconds(ttl))

    def claim(self, key: str, *, lease: float, ttl: float, **options: Any) -> Claim | Holder | Absent:
        durations = {"lease": microseconds(lease), "ttl": microseconds(ttl)}
        answer = machine.claim(self.records.get(key), self.now, key, **durations, **options)
        if isinstance(answer, Claim):
            self.records[key] = answer.record
        return answer

    def settle(self, claim: Claim, *, hold: float, ttl: float, **options: Any) -> bool:
        durations = {"hold": microseconds(hold), "ttl": microseconds(ttl)}
        record, accepted = machine.settle(self.records.get(claim.key), self.now, claim, **durations, **options)
        self.put(claim.key, record)
        return accepted

    def get(self, key: str) -> Record | None:
        return machine.live(self.records.get(key), self.now)

    def put(self, key: str, record: Record | None) -> None:
        self.records.pop(key, None)
        if record is not None:
            self.records[key] = record
