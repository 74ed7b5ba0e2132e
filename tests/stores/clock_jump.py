"""Run under libfaketime: a token is issued and used while the wall clock jumps. Arguments: its file, the seconds."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from flask_idempotent.core.record import Claim, Holder, State
from flask_idempotent.stores.memory import MemoryStore


def main(clock: str, jump: float) -> None:
    store = MemoryStore()
    store.issue("token", binding="b", scene="", ttl=60)
    before = time.time()
    Path(clock).write_text(f"{jump:+f}\n")
    if abs(time.time() - before - jump) < 5:
        print("jumped")
    claim = store.claim("token", owner="anna", lease=30, ttl=60, must_exist=True, binding="b")
    if isinstance(claim, Claim):
        print("claimed")
    Path(clock).write_text("+0\n")
    again = store.claim("token", owner="ben", lease=30, ttl=60, must_exist=True, binding="b")
    if isinstance(again, Holder):
        print(again.verdict)
    if isinstance(claim, Claim):
        print("done", store.settle(claim, state=State.DONE, hold=0, ttl=60))


main(sys.argv[1], float(sys.argv[2]))
