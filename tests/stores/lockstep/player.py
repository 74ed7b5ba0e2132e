"""One server, the memory store and the machine, in lockstep."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import Any

from flask_idempotent.core.record import MICROSECONDS, Claim, Record
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.stores.redis import RedisStore, layout
from tests.stores.lockstep.model import Model
from tests.stores.lockstep.reached import KINDS, Seen, name_of
from tests.stores.lockstep.scripts import Step
from tests.stores.lockstep.servers import Moved

_numbers = itertools.count()


class Player:
    """Plays scripts, insists that all three agree, and counts what was reached.

    :param name: of the server, for messages.
    :param server: whose time counts for all three.
    """

    def __init__(self, name: str, server: Moved) -> None:
        self.name = name
        self.reached: Counter[str] = Counter()
        self.scripts = self.steps = 0
        self._server = server
        self._redis = RedisStore(server.client)
        self._model = Model()
        self._memory = MemoryStore(clock=lambda: self._model.now / MICROSECONDS)
        self._begin()

    def play(self, script: list[Step]) -> None:
        """Play one script on keys of its own.

        :raises AssertionError: the three differ.
        """
        self._begin()
        self.scripts += 1
        for number, (name, which, options) in enumerate(script, 1):
            self.steps += 1
            self._played = script[:number]
            if name == "wait":
                self._server.wait(which)
            elif name == "delete":
                self._put(self._key(which), None)
            elif name == "go back":
                self._go_back(self._key(which), options)
            elif name != "settle":
                self._all(name, self._key(which), self._key(which), options)
            elif self._claims:
                target = self._claims[-1 - which % len(self._claims)]
                self._all(name, target.key, target, options)

    def _begin(self) -> None:
        self._played: list[Step] = []
        self._round = next(_numbers)
        self._claims: list[Claim] = []
        self._past: defaultdict[str, list[Record | None]] = defaultdict(list)  # what was stored before each write

    def _key(self, which: str) -> str:
        return f"{which}{self._round}"

    def _all(self, name: str, key: str, target: Any, options: dict[str, Any]) -> None:
        """Give one command to all three, the server first: it says what time it is."""
        stored = self._model.records.get(key)
        answer = getattr(self._redis, name)(target, **options)
        now = self._model.now = self._server.client.moment
        self._compare(name, answer, *(getattr(store, name)(target, **options) for store in (self._model, self._memory)))
        after = self._agreed_on(key)
        if after != stored:
            self._past[key].append(stored)
        if isinstance(answer, Claim):
            self._claims.append(answer)
        kind = name_of(Seen(name, now, stored, after, answer, target, options))
        assert kind in KINDS, self._said(f"what is {kind!r}?")
        self.reached[kind] += 1

    def _agreed_on(self, key: str) -> Record | None:
        record = self._redis.get(key)
        self._model.now = self._server.client.moment
        self._compare("record", record, self._model.get(key), self._memory.get(key))
        return record

    def _compare(self, what: str, server: Any, machine: Any, memory: Any) -> None:
        if not server == machine == memory:
            difference = f"{what}\n  server  {server}\n  machine {machine}\n  memory  {memory}"
            raise AssertionError(self._said(difference))

    def _said(self, difference: str) -> str:
        return "\n  ".join([f"on {self.name}, after", *map(repr, self._played), difference])

    def _go_back(self, key: str, writes: int) -> None:
        """As a failover that loses the last writes."""
        past = self._past[key][-writes:]
        if past:
            del self._past[key][-writes:]
            self._put(key, past[0])

    def _put(self, key: str, record: Record | None) -> None:
        """Store a record as it is, in all three; None deletes it."""
        self._model.put(key, record)
        self._memory._put(key, record, self._model.now)
        if record is None:
            self._server.client.execute_command("DEL", key)
        else:
            ends = -(-record.expires_at // 1000)
            self._server.client.execute_command("SET", key, layout.pack(record), "PXAT", ends)
        self._agreed_on(key)
