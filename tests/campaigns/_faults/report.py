"""The figures of a run, for a person."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

from tests.campaigns._faults.checker import Findings
from tests.campaigns._faults.history import History

SHOWN = 5  # stories that are told in full
ANSWERS = (
    "ran",
    "replayed",
    "again",
    "own",
    "none",
    "in_progress",
    "store_unavailable",
    "duplicate",
    "response_unavailable",
    "failed",
    "token_unknown",
    "token_reused",
)


FIGURES = (
    ("effects", "effects"),
    ("of them declared with keep()", "kept"),
    ("takeovers", "event taken_over"),
    ("claims lost by a late owner", "event claim_lost"),
    ("ends that could not be recorded", "event settle_failed"),
    ("double effects against the promise", "double effects against the promise"),
    ("double effects by takeover", "double effects by takeover"),
    ("of them of runs whose end could not be recorded", "doubles not recorded"),
    ("double effects where the store lost writes on purpose", "double effects where writes were lost"),
    ("tokens in use when it lost writes", "tokens with lost writes"),
    ("consumed without an effect (crash, or a claim without a reply)", "consumed without an effect"),
    ("503 though nothing was done to the store", "503 in calm"),
)


def lines(history: History, findings: Findings) -> Iterator[str]:
    counts, stories = findings.counts, history.stories.values()
    faults = Counter(fault.kind for fault in history.faults)
    stalls = faults.pop("stall", 0)
    yield f"tokens: {len(stories)}"
    yield f"attempts: {sum(len(story.attempts) for story in stories)}"
    yield "answers: " + ", ".join(f"{name} {counts[name]}" for name in ANSWERS if counts[name])
    yield f"faults: {faults.total()}"
    yield from (f"  {kind}: {number}" for kind, number in sorted(faults.items()))
    yield f"standstills of a worker, frozen or starved: {stalls}"
    yield from (f"{label}: {counts[name]}" for label, name in FIGURES)
    yield from _refusals(findings.refusals)
    rules = Counter(complaint.rule for complaint in findings.complaints)
    yield f"lost effects: {rules['lost effect']}"
    yield f"stuck tokens: {rules['stuck']}"
    yield f"unexplained: {rules['answer'] + rules['reason']}"
    yield f"broken promises: {len(findings.complaints)}"
    yield from _told(history, findings)


def _refusals(seconds: list[float]) -> Iterator[str]:
    if len(seconds) > 1:
        cuts = statistics.quantiles(seconds, n=100)
        yield f"tokens refused for now: {len(seconds)}; seconds until they were served or refused for good:"
        yield f"  median {cuts[49]:.2f}, 99th {cuts[98]:.2f}, longest refusal {max(seconds):.2f}"


def _told(history: History, findings: Findings) -> Iterator[str]:
    yield from map(str, findings.complaints[:50])
    for token in list(dict.fromkeys(complaint.token for complaint in findings.complaints))[:SHOWN]:
        if token in history.stories:
            yield f"the story of {token}:"
            yield from (f"  {line}" for line in history.stories[token].lines())
