"""One token's story beside what was done to the servers meanwhile: what the rules of the checker ask about."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tests.campaigns._faults.history import Attempt, Event, Fault, Run, Story

LONGEST_FAULT: Final = 60.0  # seconds; only to look at few of them
AFTERMATH: Final = 5.0  # seconds for which a request without an answer may still be worked on
OPEN_BREAKER: Final = 3.0  # seconds for which nobody asks a store again that was slow, with the clients of a URL
UNANSWERED: Final = "unanswered"  # the product said that the store gave no answer
OF_WORKERS: Final = ("worker", "stall")  # faults of one process; all others are of the store and the way to it


@dataclass(frozen=True, slots=True)
class Promise:
    """What was promised, as numbers.

    :param lease: seconds that a claim holds without news.
    :param life: seconds that a token lives.
    """

    lease: float
    life: float

    @property
    def longest_refusal(self) -> float:
        """Seconds without faults in which a token must be served or refused for good: a lease (a clock that went back
        makes it longer, by two leases here), the breaker's longest pause, the longest view."""
        return 3 * self.lease + 10 + 7


class Weather:
    """All faults, by time."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = sorted(faults, key=lambda fault: fault.start)
        self._starts = [fault.start for fault in self._faults]

    def between(self, start: float, end: float) -> Iterator[Fault]:
        for fault in self._faults[bisect_left(self._starts, start - LONGEST_FAULT) :]:
            if fault.start > end:
                return
            if fault.end >= start:
                yield fault

    def forward(self, start: float, end: float) -> float:
        """Seconds by which the store's clock may have jumped forward meanwhile."""
        return sum(max(0.0, fault.seconds) for fault in self.between(start, end))

    def loses(self, what: tuple[str, ...], start: float, end: float) -> bool:
        return any(fault.loses in what for fault in self.between(start, end) if fault.loses)

    def at_the_store(self, start: float, end: float, *, injected: bool = False) -> bool:
        """Whether the store, or the way to it, was in trouble: by the injector, or by a busy machine, too."""
        kinds = (fault.kind for fault in self.between(start, end))
        return any(not kind.startswith(OF_WORKERS) and not (injected and kind == UNANSWERED) for kind in kinds)

    def at_process(self, pid: int, start: float, end: float) -> bool:
        return any(fault.pid == pid and fault.kind.startswith(OF_WORKERS) for fault in self.between(start, end))


class Case:
    """One story, indexed."""

    def __init__(self, story: Story, weather: Weather, promise: Promise) -> None:
        self.story = story
        self.weather = weather
        self.promise = promise
        self.view = story.issue.view
        self.attempts = {attempt.id: attempt for attempt in story.attempts}
        self.runs = {run.attempt: run for run in story.runs}
        self._events: dict[str, list[Event]] = {}
        for event in story.events:
            self._events.setdefault(event.attempt or self._by_heartbeat(event), []).append(event)

    def event(self, attempt: str, *names: str) -> Event | None:
        """The first of these that the product told about an attempt."""
        return next((event for event in self._events.get(attempt, ()) if event.name in names), None)

    def _by_heartbeat(self, event: Event) -> str:
        """The attempt of an event that the heartbeat's thread told: the run in its process at that time."""
        at_work = [run for run in self.story.runs if run.pid == event.pid and run.begin <= event.at]
        return max(at_work, key=lambda run: run.begin).attempt if at_work else ""

    def claimed(self, run: Run) -> Event | None:
        return self.event(run.attempt, "claimed", "taken_over")

    @property
    def takeover_is_allowed(self) -> bool:
        return self.view not in ("strict", "consume")

    def stands(self, run: Run) -> bool:
        """Whether the run's effect counts: it was not undone by a failure that gave the token back."""
        if run.effect is None:
            return False
        if run.kept is not None or run.succeeded or run.outcome is None:
            return True
        return self.view == "strict"  # raises and fails: half done, for people to reconcile

    @cached_property
    def spans(self) -> list[tuple[float, float]]:
        """When the store may have been asked about this token."""
        spans = [(self.story.issue.start, self.story.issue.end)]
        for attempt in self.story.attempts:
            run = self.runs.get(attempt.id)
            ends = [attempt.end, attempt.end + AFTERMATH * (not attempt.status)]
            if run is not None:
                ends.append(run.end if run.end is not None else run.begin + AFTERMATH)
            if (event := self.event(attempt.id, "claimed", "taken_over")) is not None:
                ends.append(event.at)
            spans.append((attempt.start, max(ends)))
        return spans

    @property
    def whole(self) -> tuple[float, float]:
        return self.story.issue.start, max(end for _, end in self.spans)

    @cached_property
    def lost_writes(self) -> bool:
        """Whether the store may have lost writes about this token and kept older ones. What nobody issued is free again
        after the loss of everything, too; a token is unknown then, and refused."""
        what = ("writes", "all") if self.story.issue.door == "key" else ("writes",)
        return any(self.weather.loses(what, start - 0.5, end + 0.5) for start, end in self.spans)

    def lost_reply_before(self, attempt: Attempt) -> bool:
        """Whether an earlier attempt may have claimed without anybody's knowing."""
        return any(
            other.answer in ("none", "store_unavailable") and other.start <= attempt.end
            for other in self.story.attempts
            if other.id != attempt.id
        )
