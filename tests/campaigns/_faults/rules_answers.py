"""Rules about what clients saw: documented answers only, each for a reason, and an end to each story."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.campaigns._faults.case import Case
from tests.campaigns._faults.history import Attempt, Run

REFUSALS = {
    "in_progress": 409,
    "duplicate": 409,
    "response_unavailable": 409,
    "failed": 409,
    "token_unknown": 409,
    "token_reused": 422,
    "store_unavailable": 503,
}


def documented(case: Case) -> Iterator[str]:
    """Every answer is the view's own or a documented refusal; who was refused did not run."""
    if case.story.token.startswith("a page"):
        yield case.story.token
    for attempt in case.story.attempts:
        run = case.runs.get(attempt.id)
        if attempt.reason is not None:
            if REFUSALS.get(attempt.reason) != attempt.status or attempt.replayed:
                yield f"undocumented: {attempt}"
            if attempt.reason in ("in_progress", "store_unavailable") and not attempt.retry_after:
                yield f"no Retry-After: {attempt}"
            if run is not None:
                yield f"refused, though it ran: {attempt}"
        elif not _is_own(case, attempt):
            yield f"unexplained: {attempt}"


def _is_own(case: Case, attempt: Attempt) -> bool:
    run = case.runs.get(attempt.id)
    outcome = run.outcome if run is not None else None
    match attempt.status:
        case 0:
            return True
        case 201 | 303:
            return attempt.run is not None
        case 200:
            return outcome == "again" and not attempt.replayed
        case 400:
            return outcome == "refuses"
        case 500:
            return outcome in ("raises", "fails")
    return False


def justified(case: Case) -> Iterator[str]:
    """A refusal has its reason in the story."""
    for attempt in case.story.attempts:
        is_true = _REASONS.get(attempt.answer)
        if is_true is not None and not is_true(case, attempt):
            yield f"refused for no reason: {attempt}"


def _others(case: Case, attempt: Attempt) -> Iterator[Attempt]:
    return (other for other in case.story.attempts if other.id != attempt.id and other.start <= attempt.end)


def _begun(case: Case, attempt: Attempt) -> list[Run]:
    """The runs that may have claimed before this was answered: a view's first mark may come later than its claim."""
    starts = {other.id: other.start for other in case.story.attempts}
    return [run for run in case.story.runs if starts.get(run.attempt, run.begin) <= attempt.end]


def _in_progress(case: Case, attempt: Attempt) -> bool:
    return any(True for _ in _others(case, attempt))


def _reused(case: Case, attempt: Attempt) -> bool:
    return any(other.content != attempt.content for other in _others(case, attempt))


def _duplicate(case: Case, attempt: Attempt) -> bool:
    begun = _begun(case, attempt)
    if case.view == "consume":  # done at the claim, which may have been one without a reply, or without a run
        return bool(begun) or case.lost_reply_before(attempt)
    return case.view == "reject" and any(case.stands(run) for run in begun)


def _unavailable(case: Case, attempt: Attempt) -> bool:
    kept = any(run.kept is not None or run.outcome is None for run in _begun(case, attempt))
    # What the store could not be told at once it is told later, without the answer.
    return case.view in ("replay", "strict") and (kept or _settle_failed(case))


def _failed(case: Case, attempt: Attempt) -> bool:
    half = any(
        run.outcome in ("raises", "fails") or run.end is None or run.end >= attempt.start
        for run in _begun(case, attempt)
    )
    # The end was written, and the store went back to before it: the claim stands there again, and nobody takes it over.
    undone = any(case.weather.loses(("writes",), run.begin, attempt.end) for run in _begun(case, attempt))
    return case.view == "strict" and (half or undone or case.lost_reply_before(attempt) or _settle_failed(case))


def _settle_failed(case: Case) -> bool:
    return any(case.event(run.attempt, "settle_failed") for run in case.story.runs)


def _unknown(case: Case, attempt: Attempt) -> bool:
    issue, weather = case.story.issue, case.weather
    age = attempt.end - issue.start + weather.forward(issue.start, attempt.end)
    lost = weather.loses(("all", "writes"), issue.start, attempt.end)
    return not issue.recorded or lost or age >= case.promise.life


_REASONS: dict[str, Callable[[Case, Attempt], bool]] = {
    "in_progress": _in_progress,
    "token_reused": _reused,
    "duplicate": _duplicate,
    "response_unavailable": _unavailable,
    "failed": _failed,
    "token_unknown": _unknown,
}


def stuck(case: Case) -> Iterator[str]:
    """Every token was served or refused for good in the end."""
    if case.story.attempts and not any(attempt.final for attempt in case.story.attempts):
        yield f"still {case.story.attempts[-1].answer} at the end"
