"""The published policy in words: what is to be said of one route, each topic a sentence or two of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from .policy import Choice, Route, Source
from .snapshot import REPLAYED

_UNITS: Final = ((86400, "day"), (3600, "hour"), (60, "minute"))
_BINDINGS: Final = {
    "ip": "by a client with the address it was issued to",
    "session": "in the session it was issued in",
    "user": "by the user it was issued to",
    "none": "by whoever holds it",
}
_PLACES: Final = {"form": "form", "query": "query", "json": "JSON object", "path": "path"}
_DUPLICATES: Final = {
    "replay": (
        "is refused while the first request runs; afterwards it gets the first answer again, marked "
        f"`{REPLAYED}: true`, or a refusal where that was not kept or is not for this caller."
    ),
    "reject": "is refused.",
}
_FAILURES: Final = {
    "restored": "Of a failure nothing is kept: the same token or key may be sent again.",
    "failed": "A failure stays failed and is not run again, but for a 4xx, which leaves nothing behind.",
    "as it says": "Whatever else comes of it stays failed and is not run again.",
}


def topics(route: Route) -> Iterator[tuple[str, str]]:
    """Yield title and words of everything that holds for the route."""
    if route.sources:
        yield "Token or key", _doors(route)
        if route.same.binding is not None:
            yield "A token", _token(route)
        if route.same.within is not None:
            yield "A key", _key(route)
        yield "The same request", _content(route)
        yield "Lives", _lives(route)
        yield "Kept", _kept(route)
        yield "A duplicate", _duplicate(route)
    if route.lives.interval is not None:
        seconds = _duration(route.lives.interval)
        yield (
            "Interval",
            f"the same user (or address, if nobody is known) may do this once in {seconds}; a failure does not count.",
        )
    if route.lock is not None:
        yield "Lock", f"one operation at a time for the same {_choice(route.lock)}, whatever its token or key."
    if route.store_down == "pass":
        yield "While the store is away", "requests run without this protection."


def _doors(route: Route) -> str:
    doors = "; or ".join(_long(source) for source in route.sources)
    several = " The first that is present counts." if len(route.sources) > 1 else ""
    needed = "required" if route.required else "optional: without one the request runs unprotected"
    return f"{doors}.{several} It is {needed}."


def door(source: Source) -> str:
    """Return where a token or key comes from, for a table."""
    if source.source == "token":
        return "token"
    if source.source == "header":
        return f"header {_code(source.header or '')}"
    if source.source == "param":
        return f"parameter {_code(source.name or '')}"
    return _choice(source.key or Choice())


def _long(source: Source) -> str:
    places = [_PLACES[place] for place in source.places if place != "header"]
    inside = f"{_code(source.name or '')} in the {_listed(places)}"
    if source.source == "token":
        ways = {"header": f"the header {_code(source.header or '')}", "name": inside}
        ordered = sorted(ways, key=lambda way: (way == "header") != (source.places[0] == "header"))
        given = [ways[way] for way in ordered if (way == "header" and source.header) or (way == "name" and source.name)]
        return f"a token that the server issued, as {' or '.join(given)}"
    limit = f"at most {source.length} characters"
    if source.source == "header":
        return f"a key in the header {_code(source.header or '')}, {limit}"
    if source.source == "param":
        return f"a key as {inside}, {limit}"
    return f"a key computed from the request: {_choice(source.key or Choice())}, {limit}"


def _token(route: Route) -> str:
    binding = route.same.binding or Choice()
    who = _BINDINGS.get(binding.value or "", f"as {_choice(binding)}")
    scene = "" if route.same.scene == route.endpoint else f", if it was issued for {_code(route.same.scene)} or for any"
    return f"is good for one request, {who}{scene}."


def _key(route: Route) -> str:
    principal = route.same.principal
    who = "the verified one, else whom the credentials name" if principal.value else _choice(principal)
    where = f"the scene {_code(route.same.scene)}" if route.same.within == "scene" else "method, path"
    return f"is unique within {where} and user ({who})."


def _content(route: Route) -> str:
    same = route.same
    asked = {
        "all": "method, path, query and content",
        "fields": f"method, path and, of query and content, {_names(same.fields)}",
        "none": "method and path",
        None: f"method, path and what is {_choice(same.content)}",
    }[same.content.value]
    ignored = f", without {_names(same.ignored)}" if same.ignored else ""
    largest = f" Of a body above {_size(same.max_body)} only type and length count."
    read = same.content.value in ("all", "fields")
    return f"{asked}{ignored}.{largest if read else ''} The same token or key with anything else is refused."


def _lives(route: Route) -> str:
    lives, said = route.lives, []
    if lives.token is not None:
        said.append(f"a token is good for {_duration(lives.token)}, if its form says nothing else")
    if lives.token_result is not None:
        said.append(f"a used token is remembered for {_duration(lives.token_result)}")
    if lives.key_result is not None:
        said.append(f"a key is remembered for {_duration(lives.key_result)} and runs as new afterwards")
    if lives.lease is not None and route.outcomes.failure == "restored":
        said.append(f"a request whose worker gave no news for {_duration(lives.lease)} may run again")
    return "; ".join(said) + "."


def _kept(route: Route) -> str:
    outcomes = route.outcomes
    success = outcomes.success.value or _choice(outcomes.success)
    what = "that it was done, and its answer" if outcomes.kept else "that it was done, without its answer"
    limit = f", if that has at most {_size(outcomes.max_result)}" if outcomes.max_result is not None else ""
    odd = outcomes.failure == "failed" and outcomes.success.value is None
    after = _FAILURES["as it says" if odd else outcomes.failure or "restored"]
    crash = " If the server dies meanwhile it counts as done." if outcomes.consumed else ""
    return f"of a success ({success}) {what}{limit}. {after}{crash}"


def _duplicate(route: Route) -> str:
    policy = route.duplicates or Choice()
    if policy.value == "ignore":
        words = f"is answered with {route.silent_status} and nothing else."
    else:
        words = _DUPLICATES.get(policy.value or "", f"is answered as {_choice(policy)}.")
    if route.lives.wait is not None:
        words += f" It waits up to {_duration(route.lives.wait)} for the first request."
    return words


def remembered(route: Route) -> str:
    """Return for how long a repetition is recognised, for a table."""
    lives = {_duration(life) for life in (route.lives.token_result, route.lives.key_result) if life is not None}
    return " or ".join(sorted(lives))


def _choice(choice: Choice) -> str:
    if choice.value is not None:
        return _code(choice.value)
    name = "" if choice.decided_by == "<lambda>" else f" ({_code(choice.decided_by or '')})"
    return f"decided by the application{name}"


def name(route: Route) -> str:
    """Return methods and rule, in a code span."""
    return _code(f"{', '.join(route.methods)} {route.rule}")


def _names(names: Sequence[str]) -> str:
    return _listed([_code(name) for name in names], "and") or "nothing"


def _listed(words: Sequence[str], last: str = "or") -> str:
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _code(text: str) -> str:
    """Return a code span; text that holds backticks takes a longer fence."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    inner = f" {text} " if len(fence) > 1 else text
    return f"{fence}{inner}{fence}"


def cell(text: str) -> str:
    """Return text that fits into a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _duration(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size and seconds % size == 0:
            return _counted(seconds / size, unit)
    return _counted(seconds, "second")


def _size(size: int) -> str:
    for factor, unit in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return _counted(size, "byte")


def _counted(number: float, unit: str) -> str:
    return f"{number:.10g} {unit}{'' if number == 1 else 's'}"
