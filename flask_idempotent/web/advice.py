"""What is probably a mistake in the way views are marked; ``flask idempotency check`` prints it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any, Final

from flask import Flask
from werkzeug.routing import Rule

from .expressions import Expression
from .look import Seen
from .marks import Mark, View, layers, mark_of
from .publish import served
from .rules import Rules
from .sources import SPOKEN_OF

_SHORTEST_LEASE: Final = 5.0
"""Seconds. The heartbeat has half of a lease for its news; a pause of the machine or the network may take as long."""
_LONGEST_WAIT: Final = 30.0
"""Seconds after which gunicorn kills a worker that has not answered."""


def of_views(
    app: Flask, marks: Mapping[tuple[str, str], Mark], rules: Mapping[tuple[str, str], Rules]
) -> Iterator[str]:
    """Yield what is odd about views that are guarded, each thing once.

    :param marks: by endpoint and method, as the rules.
    """
    said: dict[str, None] = {}
    for rule in served(app):
        for method in sorted(rule.methods or ()):
            at = (rule.endpoint, method)
            if at in rules:
                said.update(dict.fromkeys(_of_view(marks[at], rule, rules[at])))
    yield from said


def hidden(app: Flask, seen: Seen) -> dict[tuple[str, str], Mark]:
    """Return the marks that lie where the look cannot see them, by endpoint and method: such a view claims late.

    A decorator without ``functools.wraps`` keeps the function that it calls in its closure, or in an attribute.
    """
    found: dict[tuple[str, str], Mark] = {}
    for rule in served(app):
        view = app.view_functions.get(rule.endpoint)
        if view is None or mark_of(view) is not None:
            continue
        within = (mark_of(function) for function in _within(view))
        mark = next((mark for mark in within if mark is not None and mark not in seen.known), None)
        if mark is not None:
            found.update({(rule.endpoint, method): mark for method in rule.methods or ()})
    return found


def _within(view: View) -> Iterator[FunctionType]:
    """Yield the functions that a view holds, and those that they hold."""
    found: set[int] = set()
    waiting: list[Any] = [view]
    while waiting:
        for layer in layers(waiting.pop()):
            held = [each for each in _held(layer) if isinstance(each, FunctionType) and id(each) not in found]
            found.update(map(id, held))
            waiting += held
            yield from held


def _held(layer: View) -> Iterator[Any]:
    for cell in getattr(layer, "__closure__", None) or ():
        with suppress(ValueError):  # not filled yet
            yield cell.cell_contents
    yield from getattr(layer, "__dict__", {}).values()


def _of_view(mark: Mark, rule: Rule, rules: Rules) -> Iterator[str]:
    if rules.sources and not rules.consume and rules.lease < _SHORTEST_LEASE:
        yield (
            f"The lease of {mark.where} is {rules.lease:g} s: a worker that pauses for as long loses its claim while "
            f"it works, and the view runs again. Give it {_SHORTEST_LEASE:g} s or more."
        )
    if rules.wait > _LONGEST_WAIT:
        yield (
            f"A duplicate waits up to {rules.wait:g} s at {mark.where}, and holds a worker meanwhile; servers give up "
            f"sooner. Clients may as well come again."
        )
    for option, asked in (("key", rules.key), ("lock", rules.lock), ("fingerprint", rules.fingerprint)):
        yield from _of_option(f"{option}= of {mark.where}", asked, rule)


def _of_option(option: str, asked: Any, rule: Rule) -> Iterator[str]:
    if isinstance(asked, Expression):
        for name in sorted(asked.names.difference(SPOKEN_OF, rule.arguments)):
            yield (
                f"{option} speaks of {name!r}, which is neither {', '.join(SPOKEN_OF)} nor an argument of the "
                f"view under {rule.rule}: it is missing in every request."
            )
    elif callable(asked) and not _takes(asked, rule.arguments):
        arguments = ", ".join(sorted(rule.arguments)) or "none"
        yield f"{option} does not take the view's arguments under {rule.rule} ({arguments}): every request fails."


def _takes(asked: Any, names: set[str]) -> bool:
    try:
        inspect.signature(asked).bind(**dict.fromkeys(names))
    except TypeError:
        return False
    except ValueError:  # a callable written in C, of which nothing is known
        return True
    return True
