"""What happened, as clients, views, the product and the injector wrote it down. Times are seconds of the machine's
monotonic clock, which all processes share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

ATTEMPTS: Final = "attempts"
LEDGER: Final = "ledger"
FAULTS: Final = "faults"
FINAL: Final = frozenset({"ran", "replayed", "duplicate", "response_unavailable", "failed", "token_unknown"})
"""Answers that are the last, whatever was sent."""
WAITING: Final = frozenset({"in_progress", "store_unavailable"})


@dataclass(frozen=True, slots=True)
class Issue:
    """A token as its client got it.

    :param recorded: whether the server said that the store has it.
    :param door: ``token``, or ``key`` for one that a client made and nobody issued.
    """

    token: str
    view: str
    start: float
    end: float
    recorded: bool
    door: str = "token"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request of a client.

    :param status: 0 if there was no answer: cut off, or the client hung up.
    :param run: which run the answer speaks of, if it is a success.
    :param content: which of its contents the client sent.
    """

    token: str
    id: str
    start: float
    end: float
    status: int
    reason: str | None = None
    run: str | None = None
    body: str = ""
    replayed: bool = False
    retry_after: bool = False
    content: int = 0

    @property
    def answer(self) -> str:
        """One word for it: none, ran, replayed, again, own (the view's own failure), or a refusal's reason."""
        if not self.status:
            return "none"
        if self.reason is not None:
            return self.reason
        if self.run is not None and self.status in (201, 303):
            return "replayed" if self.replayed else "ran"
        return "again" if self.status == 200 else "own"

    @property
    def final(self) -> bool:
        """Whether its client has no reason to send it again. Other content is refused for good only to who sent it."""
        return self.answer in FINAL or (self.answer == "token_reused" and self.content == 0)


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a view. What is None did not happen, or its process died before.

    :param outcome: returns, redirects, fails (a 500), raises, refuses (a 400), again (it gave its claim back).
    """

    token: str
    attempt: str
    pid: int
    begin: float
    fence: int
    effect: float | None = None
    kept: float | None = None
    end: float | None = None
    outcome: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.outcome in ("returns", "redirects")


@dataclass(frozen=True, slots=True)
class Event:
    """What the product said of itself. From the heartbeat's thread it names no attempt."""

    at: float
    pid: int
    name: str
    token: str
    attempt: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """What the injector did, or (kind ``stall``) what a worker suffered from a busy machine.

    :param seconds: by how much a clock jumped.
    :param loses: ``writes``: those between start and end; ``all``; or nothing.
    """

    kind: str
    start: float
    end: float
    pid: int = 0
    seconds: float = 0.0
    loses: str = ""

    def overlaps(self, start: float, end: float) -> bool:
        return self.start <= end and start <= self.end


@dataclass(slots=True)
class Story:
    """Everything about one token."""

    issue: Issue
    attempts: list[Attempt] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def token(self) -> str:
        return self.issue.token

    def lines(self) -> Iterator[str]:
        """The story in order of time, for a person."""
        timed: list[tuple[float, str]] = [(self.issue.end, str(self.issue))]
        timed += [(attempt.end, str(attempt)) for attempt in self.attempts]
        timed += [(run.begin, str(run)) for run in self.runs]
        timed += [(event.at, str(event)) for event in self.events]
        return (f"{at:.3f} {line}" for at, line in sorted(timed))


@dataclass(slots=True)
class History:
    """All stories, and what was done to the servers meanwhile."""

    stories: dict[str, Story] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    """Tokens in the ledger that no client ever got."""

    @classmethod
    def of(cls, issues: Iterable[Issue], things: Iterable[Attempt | Run | Event | Fault]) -> History:
        history = cls({issue.token: Story(issue) for issue in issues})
        for thing in things:
            history._add(thing)
        for story in history.stories.values():
            story.attempts.sort(key=lambda attempt: attempt.start)
            story.runs.sort(key=lambda run: (run.fence, run.begin))
            story.events.sort(key=lambda event: event.at)
        return history

    def _add(self, thing: Attempt | Run | Event | Fault) -> None:
        if isinstance(thing, Fault):
            self.faults.append(thing)
            return
        story = self.stories.get(thing.token)
        if story is None:
            if not isinstance(thing, Event):  # those of the store as a whole name no token
                self.strays.append(thing.token)
        elif isinstance(thing, Attempt):
            story.attempts.append(thing)
        elif isinstance(thing, Run):
            story.runs.append(thing)
        else:
            story.events.append(thing)


def load(folder: Path) -> History:
    """Read the three files of a run."""
    issues, attempts = [], []
    for line in _lines(folder / ATTEMPTS):
        kind = line.pop("kind")
        (issues if kind == "issue" else attempts).append((Issue if kind == "issue" else Attempt)(**line))
    faults = [Fault(**line) for line in _lines(folder / FAULTS)]
    return History.of(issues, [*attempts, *_read_ledger(folder / LEDGER), *faults])


def _read_ledger(path: Path) -> Iterator[Run | Event | Fault]:
    runs: dict[tuple[str, float], Run] = {}
    open_runs: dict[str, tuple[str, float]] = {}
    for line in _lines(path):
        what, at, pid = line["what"], line["t"], line["pid"]
        if what == "event":
            yield Event(at, pid, line["name"], line["token"], line["attempt"], line["reason"])
        elif what == "stall":
            yield Fault("stall", line["since"], at, pid)
        elif what == "begin":
            open_runs[line["attempt"]] = name = (line["attempt"], at)
            runs[name] = Run(line["token"], line["attempt"], pid, at, line["fence"])
        else:
            name = open_runs[line["attempt"]]
            more = {"end": at, "outcome": line["outcome"]} if what == "end" else {what: at}
            runs[name] = replace(runs[name], **more)
    yield from runs.values()


def at_work(ledger: Path, tail: int = 50_000) -> set[int]:
    """The processes in which a view has begun and not ended, as the last bytes of the ledger say."""
    with ledger.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - tail))
        lines = [json.loads(line) for line in file.read().splitlines()[1:]]
    begun = {line["attempt"]: line["pid"] for line in lines if line["what"] == "begin"}
    return {begun[name] for name in begun.keys() - {line["attempt"] for line in lines if line["what"] == "end"}}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
