"""The published policy as a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from .policy import Policy, Route
from .policy_words import cell, door, name, remembered, topics

_TITLES: Final = {"token": "Token", "header": "Key in a header", "value": "Key in a parameter or computed"}


def markdown(policy: Policy) -> str:
    """Return the page."""
    groups = _groups(policy.routes)
    lines = [f"# Idempotency policy of {policy.app}", "", *_introduction(policy), *_overview(groups)]
    for number, routes in enumerate(groups, 1):
        lines += _section(number, routes)
    lines += _spellings(policy) if policy.syntaxes else []
    lines += ["", "## Where this differs from the draft", ""]
    lines += [f"- {words}" for words in policy.deviations.values()]
    return "\n".join(lines) + "\n"


def _groups(routes: Sequence[Route]) -> list[list[Route]]:
    """Put routes together of which the same is to be said."""
    found: dict[Route, list[Route]] = {}
    for route in routes:
        own = route.same.scene == route.endpoint
        same = replace(route.same, scene="") if own else route.same
        common = replace(route, rule="", endpoint="", methods=(), description="", same=same)
        found.setdefault(common, []).append(route)
    return list(found.values())


def _introduction(policy: Policy) -> Iterator[str]:
    if not policy.routes:
        yield "No route is protected."
        return
    yield "A request to one of these routes runs once: a repetition with the same token or key does nothing again."
    yield "The rules are compatible with draft-ietf-httpapi-idempotency-key-header-07, but for what is said at the end."
    yield ""


def _overview(groups: list[list[Route]]) -> Iterator[str]:
    if not groups:
        return
    yield "| Route | What it does | Token or key | Required | Remembered for | Rules |"
    yield "|---|---|---|---|---|---|"
    for number, routes in enumerate(groups, 1):
        for route in routes:
            doors = " or ".join(door(source) for source in route.sources) or "none"
            required = ("yes" if route.required else "no") if route.sources else ""
            cells = [name(route), route.description, doors, required, remembered(route), str(number)]
            yield "| " + " | ".join(map(cell, cells)) + " |"


def _section(number: int, routes: list[Route]) -> Iterator[str]:
    route = routes[0]
    yield from ("", f"## Rules {number}: {name(route) if len(routes) == 1 else f'{len(routes)} routes'}", "")
    if len(routes) > 1:
        yield from (", ".join(name(each) for each in routes) + ".", "")
    elif route.description:
        yield from (route.description, "")
    for topic, words in topics(route):
        yield f"- **{topic}:** {words}"
    if route.sources or route.lock or route.lives.interval:
        yield from ("", "| Status | Reason | Retry-After | Meaning |", "|---|---|---|---|")
        for answer in route.answers:
            yield f"| {answer.status} | `{answer.reason}` | {'yes' if answer.retry_after else ''} | {answer.meaning} |"


def _spellings(policy: Policy) -> Iterator[str]:
    yield from ("", "## How they are spelled", "")
    for syntax, words in policy.syntaxes.items():
        yield f"- **{_TITLES[syntax]}:** {words}."
