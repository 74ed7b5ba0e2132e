"""An explicit-state search: workers, two keys, and a network that loses, delays and doubles.

The machine is asked, never imitated (:mod:`tests.core.asked`); what may happen to one key is in
:mod:`tests.core.one_key`; what must never happen is asked at every step (:mod:`tests.core.promises`). A state of the
world is one part for the token and one for the key. They share the workers, the network and the time, and nothing else,
so the steps of a part are found once, and a state is two numbers. Workers and owners have no names in it: states that
differ in names only are one.
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .attempts import Load
from .one_key import OneKey, Part, Rules, fits, load_of

_BITS = 28
_MASK = (1 << _BITS) - 1
_PER_LOOK = 4096  # states between two looks at the clock


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of it may happen at once.

    :param workers: of them at most so many are at work.
    :param sent: commands on their way that have not come yet.
    :param late: copies on their way of commands that have come.
    :param keys: which of the two can be claimed.
    """

    workers: int = 3
    sent: int = 3
    late: int = 3
    keys: tuple[str, ...] = ("token", "key")


class Broken(AssertionError):
    """A promise does not hold; the message shows the way there."""

    def __init__(self, promises: tuple[str, ...], way: list[str]) -> None:
        super().__init__("\n".join([*promises, *way]))
        self.promises = promises


@dataclass
class Found:
    """What a search has seen. ``whole`` is false if it was stopped before the last state."""

    states: int = 0
    parts: int = 0
    seconds: float = 0.0
    whole: bool = False
    steps: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    ways: dict[str, list[str]] = field(default_factory=dict)  # to the first break of each
    facts: Counter[str] = field(default_factory=Counter)

    @property
    def transitions(self) -> int:
        return sum(self.steps.values())

    def __str__(self) -> str:
        return (
            f"{self.states:,} states ({self.parts:,} of one key), {self.transitions:,} transitions, "
            f"{self.seconds:.1f} s"
        )


class _Step(NamedTuple):
    """A part's step: where it leads, and what the part takes of the bounds then."""

    part: int
    load: Load
    name: str
    wrote: bool
    broken: tuple[str, ...]


class Search:
    """Breadth first over every state that can be reached within the bounds.

    :param go_on: is asked now and then with what was found so far; false ends the search.
    """

    def __init__(self, rules: Rules, bounds: Bounds, go_on: Callable[[Found], bool] = lambda found: True) -> None:
        self._key = OneKey(rules)
        self._bounds = bounds
        self._go_on = go_on
        self._parts: list[Part] = []
        self._numbers: dict[Part, int] = {}
        self._room: list[Load] = []  # what a part leaves for the other key
        self._steps: list[tuple[_Step, ...] | None] = []
        self._later: list[int | None] = []
        self._sealed: list[int | None] = []
        token = self._key.issued() if "token" in bounds.keys else Part(True)
        start = self._number(token) << _BITS | self._number(Part(False))
        self._queue, self._came_from, self._seen = array("q", [start]), array("q", [-1]), {start}
        self.found = Found(facts=self._key.facts)

    def run(self) -> Found:
        """Search.

        :raises Broken: a promise does not hold, and failovers are not among the rules.
        """
        began, at, queue = time.monotonic(), 0, self._queue
        while at < len(queue):
            if at % _PER_LOOK == 0 and not self._look(began):
                return self.found
            self._follow(at, queue[at] >> _BITS, queue[at] & _MASK)
            at += 1
        self._look(began)
        self.found.whole = True
        return self.found

    def _look(self, began: float) -> bool:
        found = self.found
        found.states, found.parts, found.seconds = len(self._queue), len(self._parts), time.monotonic() - began
        return self._go_on(found)

    def _follow(self, at: int, token: int, key: int) -> None:
        seen, counts = self._seen, self.found.steps
        for world, name, broken in self._following(token, key):
            counts[name] += 1
            if broken:
                self._complain(at, world, name, broken)
            if world not in seen:
                seen.add(world)
                self._queue.append(world)
                self._came_from.append(at)

    def _following(self, token: int, key: int) -> Iterator[tuple[int, str, tuple[str, ...]]]:
        yield self._tick(token) << _BITS | self._tick(key), "tick", ()
        room = self._room[key]
        for part, load, name, wrote, broken in self._steps_of(token):
            if fits(load, room):
                yield part << _BITS | (self._seal(key) if wrote else key), name, broken
        room = self._room[token]
        for part, load, name, wrote, broken in self._steps_of(key):
            if fits(load, room):
                yield (self._seal(token) if wrote else token) << _BITS | part, name, broken

    def _steps_of(self, number: int) -> tuple[_Step, ...]:
        steps = self._steps[number]
        if steps is None:
            steps = self._steps[number] = tuple(self._found_steps(self._parts[number]))
        return steps

    def _found_steps(self, part: Part) -> Iterator[_Step]:
        may_start = ("token" if part.token else "key") in self._bounds.keys
        for step, load in self._key.steps(part, Load(self._bounds.workers, self._bounds.sent, self._bounds.late)):
            if may_start or step.name != "start":
                yield _Step(self._number(step.part), load, step.name, step.wrote, step.broken)

    def _tick(self, number: int) -> int:
        later = self._later[number]
        if later is None:
            later = self._later[number] = self._number(self._key.later(self._parts[number]))
        return later

    def _seal(self, number: int) -> int:
        """A failover loses only the last write of all."""
        if not self._key.rules.failover:
            return number
        sealed = self._sealed[number]
        if sealed is None:
            sealed = self._sealed[number] = self._number(self._key.sealed(self._parts[number]))
        return sealed

    def _number(self, part: Part) -> int:
        number = self._numbers.setdefault(part, len(self._parts))
        if number == len(self._parts):
            self._parts.append(part)
            self._room.append(self._left_by(load_of(part)))
            for memory in (self._steps, self._later, self._sealed):
                memory.append(None)
        return number

    def _left_by(self, load: Load) -> Load:
        bounds = self._bounds
        return Load(bounds.workers - load.workers, bounds.sent - load.sent, bounds.late - load.late)

    def _complain(self, at: int, world: int, name: str, broken: tuple[str, ...]) -> None:
        for promise in broken:
            if promise not in self.found.broken:
                self.found.ways[promise] = self._way(at, world, name)
        self.found.broken.update(broken)
        if not self._key.rules.failover:
            raise Broken(broken, self.found.ways[broken[0]])

    def _way(self, at: int, world: int, name: str) -> list[str]:
        """The steps from the start to a state, one a line."""
        worlds = [world]
        while at >= 0:
            worlds.append(self._queue[at])
            at = self._came_from[at]
        worlds.reverse()
        way = []
        for before, after in itertools.pairwise(worlds):
            names = [n for w, n, _ in self._following(before >> _BITS, before & _MASK) if w == after]
            by = name if after == world and name in names else names[0]
            part = after >> _BITS if before & _MASK == after & _MASK else after & _MASK
            way.append(f"  {by:30} {self._key.described(self._parts[part])}")
        return way
