"""Rules about what ran: at most one effect stands, but for a takeover after a lease that its owner let pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.campaigns._faults.case import AFTERMATH, OPEN_BREAKER, Case
from tests.campaigns._faults.history import Event, Run

_ENDS = ("completed", "settle_failed", "claim_lost")


def claims(case: Case) -> Iterator[str]:
    """Each run has a claim of its own, and each request runs once."""
    for attempt, times in Counter(run.attempt for run in case.story.runs).items():
        if times > 1:
            yield f"attempt {attempt} ran {times} times"
    fences = Counter(run.fence for run in case.story.runs)
    for run in case.story.runs:
        if case.claimed(run) is None or not run.fence:
            yield f"attempt {run.attempt} ran without a claim"
        elif fences[run.fence] > 1 and not case.lost_writes:
            yield f"attempt {run.attempt} shares its fence with another"
        if run.attempt not in case.attempts:
            yield f"attempt {run.attempt} ran, but nobody made it"


def doubles(case: Case) -> Iterator[str]:
    """After a run whose effect stands, or whose end was recorded, the next claim is a takeover that may be."""
    if case.lost_writes:
        return
    for earlier, later in pairwise(case.story.runs):
        claim = case.claimed(later)
        if claim is not None and (wrong := _wrong_with(case, earlier, later, claim)):
            yield f"attempt {later.attempt} ran after {earlier.attempt}: {wrong}"


def _wrong_with(case: Case, earlier: Run, later: Run, claim: Event) -> str:
    settled = case.event(earlier.attempt, "completed", "kept_failed")
    if settled is not None and settled.at < claim.at:
        return "that one had been recorded as done or failed"
    if settled is not None and not case.weather.loses(("all",), claim.at - 0.5, settled.at):
        return "that one was recorded although it had been taken over"
    told, stands = claim.name == "taken_over", case.stands(earlier)
    unseen = _unseen_between(case, earlier, later)
    if not told and not (stands and unseen):
        return "its effect stands, and this was no takeover" if stands else ""
    if not case.takeover_is_allowed:
        return f"a {case.view} view is never taken over"
    return "" if unseen and not stands else _wrong_with_takeover(case, earlier, claim)


def _wrong_with_takeover(case: Case, earlier: Run, claim: Event) -> str:
    started = case.attempts[earlier.attempt].start if earlier.attempt in case.attempts else earlier.begin
    if claim.at - started + case.weather.forward(started, claim.at) < case.promise.lease:
        return "its lease could not have passed"
    return "" if _let_pass(case, earlier, claim.at) else "its owner was alive and well"


def _unseen_between(case: Case, earlier: Run, later: Run) -> bool:
    """Whether a third claim may lie between them, whose reply was lost: it may have taken over, been released or been
    taken over itself, and nobody told. A store that stood still may have got it late."""
    return any(
        attempt.answer in ("none", "store_unavailable") and attempt.id not in case.runs
        for attempt in case.story.attempts
        if attempt.start <= later.begin and attempt.end + AFTERMATH >= earlier.begin
    )


def _let_pass(case: Case, run: Run, until: float) -> bool:
    """Whether there is a cause for which the owner gave no news for a lease."""
    unwritten = case.event(run.attempt, "settle_failed")
    if unwritten is not None and unwritten.at < until:
        return True
    lately = until - 2 * case.promise.lease - OPEN_BREAKER
    return (
        case.weather.at_process(run.pid, run.begin - 1, until)
        or case.weather.at_the_store(lately, until)
        or case.weather.forward(run.begin, until) > 0
    )


def finality(case: Case) -> Iterator[str]:
    """Who was told that it was done was told for ever."""
    if case.lost_writes:
        return
    told = ("replayed", "response_unavailable", *(("duplicate",) if case.view != "consume" else ()))
    ends = [attempt.end for attempt in case.story.attempts if attempt.answer in told]
    for run in case.story.runs:
        attempt = case.attempts.get(run.attempt)
        if ends and attempt is not None and attempt.start > min(ends):
            yield f"attempt {run.attempt} ran after a client had been told that it was done"


def successes(case: Case) -> Iterator[str]:
    """A client that saw success has its effect, and what could be recorded was recorded before the answer left."""
    for attempt in case.story.attempts:
        if attempt.answer not in ("ran", "replayed"):
            continue
        run = case.runs.get(attempt.run or "")
        if run is None or run.effect is None or not run.succeeded:
            yield f"attempt {attempt.id} was answered with success, without an effect"
        elif attempt.answer == "ran" and run.attempt != attempt.id:
            yield f"attempt {attempt.id} got the first answer of {run.attempt}"
        elif attempt.answer == "ran" and case.view != "consume" and not case.event(run.attempt, *_ENDS):
            yield f"attempt {attempt.id} was answered before it was settled"


def replays(case: Case) -> Iterator[str]:
    """All replays are one answer, that of the run they speak of."""
    shown = [attempt for attempt in case.story.attempts if attempt.answer == "replayed"]
    # After the loss of everything a late owner may write its own answer anew.
    kept = not case.lost_writes and not case.weather.loses(("all",), *case.whole)
    if kept and len({(attempt.status, attempt.body) for attempt in shown}) > 1:
        yield f"replays differ: {sorted({attempt.body for attempt in shown})}"
    for attempt in shown:
        first = case.attempts.get(attempt.run or "")
        if first is not None and first.answer == "ran" and (first.status, first.body) != (attempt.status, attempt.body):
            yield f"the replay to {attempt.id} is not the answer that {first.id} got"
