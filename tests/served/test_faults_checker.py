"""The checker of the campaign of faults, on histories made by hand: it accepts what is promised and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.campaigns._faults.checker import Findings, Promise, check
from tests.campaigns._faults.history import Attempt, Event, Fault, History, Issue, Run

PROMISE = Promise(lease=1.5, life=100.0)
T = "token"
Thing = Attempt | Run | Event | Fault


def judged(*things: Thing, view: str = "replay", recorded: bool = True, door: str = "token") -> Findings:
    """A token issued at 0 to 0.1 s, and what happened then."""
    return check(History.of([Issue(T, view, 0.0, 0.1, recorded, door)], things), PROMISE)


def asked(name: str, at: float, status: int, reason: str | None = None, **more: Any) -> Attempt:
    """A request that took half a second."""
    waits = reason in ("in_progress", "store_unavailable")
    return Attempt(T, name, at, more.pop("end", at + 0.5), status, reason, retry_after=waits, **more)


def refused(name: str, at: float, reason: str = "in_progress", status: int = 409) -> Attempt:
    return asked(name, at, status, reason)


def told(name: str, event: str, at: float, pid: int = 1) -> Event:
    return Event(at, pid, event, T, name)


def ran(name: str, at: float, pid: int = 1, *, claim: str = "claimed", **more: Any) -> list[Run | Event]:
    """A run that begins 0.1 s after its request, with an effect at 0.2 s; it has no end unless one is given."""
    run = Run(T, name, pid, at + 0.1, int(at * 1_000_000) + 1, effect=at + 0.2)
    return [told(name, claim, at + 0.05, pid), replace(run, **more)]


def ended(name: str, at: float, outcome: str = "returns", event: str = "completed", **more: Any) -> list[Thing]:
    """A run with its end, what the product told then, and the answer to the client."""
    status = {"returns": 201, "redirects": 303, "refuses": 400, "again": 200}.get(outcome, 500)
    more.setdefault("effect", None if outcome in ("refuses", "again") else at + 0.2)
    end = more.pop("end", at + 0.3)
    body = {"run": name, "body": name} if status in (201, 303) else {}
    answer = asked(name, at, status, end=end + 0.2, **body)
    kept: list[Thing] = [told(name, event, end + 0.1)] if event else []
    return [*ran(name, at, end=end, outcome=outcome, **more), *kept, answer]


def replayed(name: str, at: float, of: str, body: str | None = None) -> Attempt:
    return asked(name, at, 201, run=of, body=body or of, replayed=True)


KILLED = Fault("worker killed", 1.0, 1.0, pid=1)
CRASHED: list[Thing] = [*ran("a", 0.5), asked("a", 0.5, 0), KILLED]
LATE_OWNER: list[Thing] = [
    *ended("a", 0.5, event="claim_lost", end=9.0),
    Fault("worker frozen past its lease", 1.0, 4.0, pid=1),
]
FAILED: list[Thing] = ended("a", 0.5, "raises", "restored")

GOOD: dict[str, tuple[str, list[Thing]]] = {
    "one request": ("replay", ended("a", 0.5)),
    "a redirect": ("replay", ended("a", 0.5, "redirects")),
    "replays": ("replay", [*ended("a", 0.5), replayed("b", 2, "a"), replayed("c", 3, "a")]),
    "refused while it runs": ("replay", [*ended("a", 0.5), refused("b", 0.6), replayed("c", 2, "a")]),
    "rejected when done": ("reject", [*ended("a", 0.5), refused("b", 2, "duplicate")]),
    "failed and restored, then served": ("replay", [*FAILED, *ended("b", 2)]),
    "refused by the view, then served": ("strict", [*ended("a", 0.5, "refuses", "restored"), *ended("b", 2)]),
    "given back, then served": ("replay", [*ended("a", 0.5, "again", "restored"), *ended("b", 2)]),
    "restore off, failed": ("strict", [*ended("a", 0.5, "raises", "kept_failed"), refused("b", 2, "failed")]),
    "restore off, and the store lost its end": (
        "strict",
        [*ended("a", 0.5), Fault("failed over", 0.6, 1.4, loses="writes"), refused("b", 5, "failed")],
    ),
    "kept, then raised": (
        "replay",
        [*ended("a", 0.5, "raises", kept=0.7), refused("b", 2, "response_unavailable")],
    ),
    "crashed and taken over": ("replay", [*CRASHED, refused("b", 1), *ended("c", 3, claim="taken_over")]),
    "crashed, taken over, failed, served": (
        "replay",
        [*CRASHED, *ended("c", 3, "raises", "restored", claim="taken_over"), *ended("d", 5)],
    ),
    "frozen, taken over, late": ("replay", [*LATE_OWNER, *ended("b", 3, claim="taken_over"), replayed("c", 5, "b")]),
    "its end not recorded, then taken over": (
        "replay",
        [*ended("a", 0.5, event="settle_failed"), *ended("b", 5, claim="taken_over")],
    ),
    "a clock that jumped past the lease": (
        "replay",
        [
            *ran("a", 0.5, end=3.0, outcome="returns"),
            asked("a", 0.5, 201, run="a", body="a", end=3.1),
            told("a", "claim_lost", 3.05),
            Fault("clock forward past the lease", 0.8, 0.8, seconds=5.0),
            *ended("b", 1.0, claim="taken_over"),
        ],
    ),
    "taken over by a claim whose reply was lost, which was released": (
        "replay",
        [*CRASHED, refused("b", 3, "store_unavailable", 503), *ended("c", 4)],
    ),
    "consumed": ("consume", [*ended("a", 0.5, event=""), refused("b", 2, "duplicate")]),
    "consumed by a claim whose reply was lost": (
        "consume",
        [refused("a", 0.5, "store_unavailable", 503), refused("b", 2, "duplicate")],
    ),
    "other content": ("replay", [*ended("a", 0.5), replace(refused("b", 2, "token_reused", 422), content=1)]),
    "unknown after the loss of everything": (
        "replay",
        [*ended("a", 0.5), Fault("wiped", 2, 2.1, loses="all"), refused("b", 3, "token_unknown")],
    ),
    "unknown when its life is over": ("replay", [*ended("a", 0.5), refused("b", 101, "token_unknown")]),
    "written anew by a late owner after the loss of everything": (
        "replay",
        [
            *ended("a", 0.5, end=5.0),
            KILLED,
            *ended("b", 3, claim="taken_over"),
            Fault("wiped", 4, 4.1, loses="all"),
            replayed("c", 6, "a"),
        ],
    ),
    "run twice where writes were lost": (
        "replay",
        [*ended("a", 0.5), Fault("failed over, last writes lost", 0.4, 1.2, loses="writes"), *ended("b", 3)],
    ),
    "the client hung up": (
        "replay",
        [
            *[*ran("a", 0.5, end=1.4, outcome="returns"), told("a", "completed", 1.45)],
            *[asked("a", 0.5, 0, end=0.6), refused("b", 0.8), replayed("c", 2, "a")],
        ],
    ),
}

BAD: dict[str, tuple[str, str, list[Thing]]] = {
    "ran twice": ("double effect", "replay", [*ended("a", 0.5), *ended("b", 2)]),
    "both at once": ("double effect", "replay", [*ended("a", 0.5), *ended("b", 0.6)]),
    "ran again after a crash without takeover": ("double effect", "replay", [*CRASHED, *ended("c", 3)]),
    "taken over too early": ("double effect", "replay", [*CRASHED, *ended("c", 1.2, claim="taken_over")]),
    "taken over from one alive and well": (
        "double effect",
        "replay",
        [
            *ended("a", 0.5, event="claim_lost", end=4.0),
            *ended("b", 3, claim="taken_over"),
        ],
    ),
    "taken over from one alive that failed later": (
        "double effect",
        "replay",
        [
            *ran("a", 0.5, end=4.0, outcome="raises"),
            asked("a", 0.5, 500, end=4.2),
            *ended("b", 3, claim="taken_over"),
        ],
    ),
    "restore off and taken over": ("double effect", "strict", [*CRASHED, *ended("c", 3, claim="taken_over")]),
    "restore off and run after a failure": (
        "double effect",
        "strict",
        [*ended("a", 0.5, "raises", "kept_failed"), *ended("b", 2)],
    ),
    "consumed twice": ("double effect", "consume", [*ended("a", 0.5, event=""), *ended("b", 2, event="")]),
    "consumed and taken over": (
        "double effect",
        "consume",
        [*CRASHED, *ended("c", 3, "returns", "", claim="taken_over")],
    ),
    "kept, raised, run again": (
        "double effect",
        "replay",
        [*ended("a", 0.5, "raises", "completed", kept=0.7), *ended("b", 2)],
    ),
    "recorded by a late owner over the new one": (
        "double effect",
        "replay",
        [*ended("a", 0.5, end=5.0), KILLED, *ended("b", 3, claim="taken_over")],
    ),
    "run twice after the loss of everything": (
        "double effect",
        "replay",
        [*ended("a", 0.5), Fault("wiped", 2, 2.1, loses="all"), *ended("b", 3)],
    ),
    "run twice, writes lost before it was issued": (
        "double effect",
        "replay",
        [Fault("failed over, last writes lost", -9, -8, loses="writes"), *ended("a", 0.5), *ended("b", 3)],
    ),
    "run after a replay": (
        "done for ever",
        "replay",
        [*ended("a", 0.5), replayed("b", 2, "a"), *ended("c", 3)],
    ),
    "success without an effect": ("lost effect", "replay", [asked("a", 0.5, 201, run="a", body="a")]),
    "a replay of a run that failed": (
        "lost effect",
        "replay",
        [*FAILED, replayed("b", 2, "a")],
    ),
    "a replay of a run that gave back": (
        "lost effect",
        "replay",
        [*ended("a", 0.5, "again", "restored"), replayed("b", 2, "a")],
    ),
    "the first answer of another": (
        "lost effect",
        "replay",
        [*ended("a", 0.5), asked("b", 2, 201, run="a", body="a")],
    ),
    "answered before it was settled": ("lost effect", "replay", ended("a", 0.5, event="")),
    "another body replayed": ("replay", "replay", [*ended("a", 0.5), replayed("b", 2, "a", "another")]),
    "two bodies replayed": (
        "replay",
        "replay",
        [*LATE_OWNER, *ended("b", 3, claim="taken_over"), replayed("c", 5, "b"), replayed("d", 6, "a")],
    ),
    "ran without a claim": ("claim", "replay", [thing for thing in ended("a", 0.5) if not isinstance(thing, Event)]),
    "one request ran twice": ("claim", "replay", [*ended("a", 0.5), *ran("a", 0.8)]),
    "a run that nobody asked for": ("claim", "replay", ran("x", 0.5)),
    "two runs under one fence": (
        "claim",
        "replay",
        [*ended("a", 0.5, "raises", "restored", fence=7), *ended("b", 2, fence=7)],
    ),
    "refused, though it ran": ("answer", "replay", [*ran("a", 0.5), refused("a", 0.5), replayed("b", 2, "a")]),
    "a 500 of ours": ("answer", "replay", [asked("a", 0.5, 500), *ended("b", 2)]),
    "a 500 after success": ("answer", "replay", [*ran("a", 0.5, end=0.8, outcome="returns"), asked("a", 0.5, 500)]),
    "a 502": ("answer", "replay", [asked("a", 0.5, 502), *ended("b", 2)]),
    "a reason with another status": ("answer", "replay", [refused("a", 0.5, "in_progress", 503), *ended("b", 2)]),
    "an unheard-of reason": ("answer", "replay", [refused("a", 0.5, "token_foreign", 403), *ended("b", 2)]),
    "no Retry-After": (
        "answer",
        "replay",
        [*ended("a", 0.5), replace(refused("b", 0.6), retry_after=False), replayed("c", 2, "a")],
    ),
    "an answer without a body of the view": ("answer", "replay", [asked("a", 0.5, 201), *ended("b", 2)]),
    "in progress, and nobody is": ("reason", "replay", [refused("a", 0.5), *ended("b", 2)]),
    "unknown for no reason": ("reason", "replay", [*ended("a", 0.5), refused("b", 2, "token_unknown")]),
    "unknown before the loss of everything": (
        "reason",
        "replay",
        [*ended("a", 0.5), refused("b", 2, "token_unknown"), Fault("wiped", 4, 4.1, loses="all")],
    ),
    "other content, and there was none": (
        "reason",
        "replay",
        [*ended("a", 0.5), refused("b", 2, "token_reused", 422)],
    ),
    "duplicate of nothing": ("reason", "reject", [*FAILED, refused("b", 2, "duplicate")]),
    "duplicate where answers are replayed": ("reason", "replay", [*ended("a", 0.5), refused("b", 2, "duplicate")]),
    "consumed by nobody": ("reason", "consume", [refused("b", 2, "duplicate")]),
    "failed, and restore was on": ("reason", "replay", [*FAILED, refused("b", 2, "failed")]),
    "failed, and nothing had": ("reason", "strict", [refused("b", 2, "failed")]),
    "failed, though its end stands": ("reason", "strict", [*ended("a", 0.5), refused("b", 5, "failed")]),
    "failed, and what was lost was lost before": (
        "reason",
        "strict",
        [Fault("failed over", 0.1, 0.2, loses="writes"), *ended("a", 0.5), refused("b", 5, "failed")],
    ),
    "not kept, though it was": ("reason", "replay", [*ended("a", 0.5), refused("b", 2, "response_unavailable")]),
    "never served": ("stuck", "replay", [*CRASHED, refused("b", 9), refused("c", 30)]),
    "never answered": ("stuck", "replay", [asked("a", 0.5, 0), refused("b", 30, "store_unavailable", 503)]),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_promised_is_accepted(name: str) -> None:
    view, things = GOOD[name]

    assert judged(*things, view=view).complaints == []


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_is_named(name: str) -> None:
    rule, view, things = BAD[name]

    assert rule in {complaint.rule for complaint in judged(*things, view=view).complaints}


def test_a_page_that_fails_is_named() -> None:
    page = Issue("a page with status 500", "replay", 0.0, 0.1, recorded=False)

    assert [complaint.rule for complaint in check(History.of([page], []), PROMISE).complaints] == ["answer"]


def test_an_unrecorded_token_may_be_unknown() -> None:
    assert judged(refused("a", 0.5, "token_unknown"), recorded=False).complaints == []


def test_a_run_of_a_token_that_nobody_got_is_named() -> None:
    assert judged(*ended("a", 0.5), replace(ran("x", 0.5)[1], token="stray")).complaints


def test_a_key_that_nobody_issued_is_free_again_after_the_loss_of_everything() -> None:
    things = [*ended("a", 0.5), Fault("wiped", 0.9, 1.0, loses="all"), *ended("b", 3)]

    assert judged(*things, door="key").complaints == []
    assert judged(*things).complaints != []


def test_effects_are_counted_by_why_they_stand_twice() -> None:
    crashed = judged(*CRASHED, *ended("c", 3, claim="taken_over")).counts
    unwritten = judged(*ended("a", 0.5, event="settle_failed"), *ended("b", 5, claim="taken_over")).counts
    lost = judged(*ended("a", 0.5), Fault("old", 0.4, 1.2, loses="writes"), *ended("b", 3)).counts
    broken = judged(*ended("a", 0.5), *ended("b", 3)).counts

    assert (crashed["double effects by takeover"], crashed["doubles not recorded"]) == (1, 0)
    assert (unwritten["double effects by takeover"], unwritten["doubles not recorded"]) == (1, 1)
    assert (lost["double effects where writes were lost"], lost["tokens with lost writes"]) == (1, 1)
    assert (broken["double effects against the promise"], broken["effects"]) == (1, 2)


def test_a_refusal_lasts_from_the_first_one_until_the_token_is_served() -> None:
    findings = judged(refused("a", 0.0), refused("b", 2.0, "store_unavailable", 503), *ended("c", 5.0))

    assert findings.refusals == [5.0]
