"""The checker: whether each token's history is possible under what is promised, and the figures.

The promise (docs, "Guarantees"): at most one effect stands for a token, whatever fails, with two exceptions. A claim
whose owner gave no news for a lease, by the store's clock, is taken over, which the product tells. A store that loses
the last writes and keeps older ones (a failover, an old snapshot) may forget a claim; one that loses everything does
not: its tokens are unknown, and refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.campaigns._faults import rules_answers, rules_effects
from tests.campaigns._faults.case import UNANSWERED, Case, Promise, Weather
from tests.campaigns._faults.history import WAITING, Fault, History

__all__ = ["Complaint", "Findings", "Promise", "check"]

RULES: dict[str, Callable[[Case], Iterator[str]]] = {
    "double effect": rules_effects.doubles,
    "claim": rules_effects.claims,
    "done for ever": rules_effects.finality,
    "lost effect": rules_effects.successes,
    "replay": rules_effects.replays,
    "answer": rules_answers.documented,
    "reason": rules_answers.justified,
    "stuck": rules_answers.stuck,
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """One broken promise."""

    rule: str
    token: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}, token {self.token}: {self.text}"


@dataclass(slots=True)
class Findings:
    """What is wrong, and how often which thing happened.

    :param refusals: for each token that was refused for now, seconds until it was served or refused for good.
    """

    complaints: list[Complaint] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    refusals: list[float] = field(default_factory=list)


def check(history: History, promise: Promise) -> Findings:
    """Judge every story."""
    findings = Findings()
    weather = Weather([*history.faults, *_unanswered(history)])
    findings.complaints += [Complaint("claim", token, "ran, but no client ever got it") for token in history.strays]
    for story in history.stories.values():
        case = Case(story, weather, promise)
        found = [Complaint(rule, story.token, text) for rule, judge in RULES.items() for text in judge(case)]
        findings.complaints += found
        findings.refusals += _refusals(case)
        _count(case, findings.counts, broken=any(complaint.rule == "double effect" for complaint in found))
    return findings


def _unanswered(history: History) -> Iterator[Fault]:
    """On a busy machine a healthy store may be too slow: the product says so, and its heartbeat meets the same."""
    for story in history.stories.values():
        for event in story.events:
            if event.name == "store_unavailable":
                yield Fault(UNANSWERED, event.at - 1, event.at)


def _count(case: Case, counts: Counter[str], *, broken: bool) -> None:
    story = case.story
    counts.update(attempt.answer for attempt in story.attempts)
    counts["effects"] += sum(run.effect is not None for run in story.runs)
    counts["kept"] += sum(run.kept is not None for run in story.runs)
    counts.update(f"event {event.name}" for event in story.events)
    standing = [run for run in story.runs if case.stands(run)]
    more = max(0, len(standing) - 1)
    counts["tokens with lost writes"] += case.lost_writes
    where = "where writes were lost" if case.lost_writes else "against the promise" if broken else "by takeover"
    counts[f"double effects {where}"] += more
    if more and not case.lost_writes and not broken:
        unwritten = [run for run in standing[:-1] if case.event(run.attempt, "settle_failed")]
        counts["doubles not recorded"] += len(unwritten)
    if case.view == "consume" and not standing and any(attempt.answer == "duplicate" for attempt in story.attempts):
        counts["consumed without an effect"] += 1
    counts["503 in calm"] += sum(
        attempt.answer == "store_unavailable"
        and not case.weather.at_the_store(attempt.start - 12, attempt.end, injected=True)
        for attempt in story.attempts
    )


def _refusals(case: Case) -> Iterator[float]:
    """A client that was served asks no more; what it asks later is no wait."""
    since: float | None = None
    for attempt in sorted(case.story.attempts, key=lambda attempt: attempt.end):
        if attempt.final:
            if since is not None:
                yield attempt.end - since
            return
        if attempt.answer in WAITING and since is None:
            since = attempt.end
