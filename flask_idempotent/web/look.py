"""One look at all view functions: which are guarded, for which methods, and what was decorated in vain."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakSet

from flask import Flask

from .marks import Mark, View, layers, mark_of, marks_made_on, where

_logger = logging.getLogger(__name__)
_apps: WeakSet[Flask] = WeakSet()


@dataclass
class Seen:
    """What the look found.

    :param marks: mark by endpoint and method.
    :param errors: mistakes that must be mended; each names the cure.
    :param warnings: what is probably a mistake.
    """

    marks: dict[tuple[str, str], Mark] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def known(self) -> frozenset[Mark]:
        """Every mark that was found on a view."""
        return frozenset(self.marks.values())

    @property
    def scenes(self) -> dict[str, Mark]:
        """Marks by the scene for which their tokens may be issued: the view's ``scene=``, or its endpoint."""
        found: dict[str, Mark] = {}
        for (endpoint, _), mark in self.marks.items():
            found.setdefault(mark.scene or endpoint, mark)
        return found


def expect(app: Flask) -> None:
    """The app is set up, and will be looked at."""
    _apps.add(app)


def look(app: Flask, methods: frozenset[str]) -> Seen:
    """Look at every view function of the app.

    :param methods: the methods that are guarded.
    """
    seen = Seen()
    for rule in app.url_map.iter_rules():
        view = app.view_functions.get(rule.endpoint)
        if view is None:
            continue
        for method in (rule.methods or set()) & methods:
            mark = _mark_for(view, method)
            if mark is not None:
                seen.marks[rule.endpoint, method] = mark
    _decorated_in_vain(app, seen)
    _safe_methods_only(app, seen)
    _lost_overrides(app, seen)
    _disagreeing_scenes(seen)
    return seen


def _mark_for(view: View, method: str) -> Mark | None:
    found = mark_of(view)
    if found is None and (function := _method_of(view, method)) is not None:
        found = mark_of(function)
    return found


def _method_of(view: View, method: str) -> View | None:
    """Return the function of a class view that answers ``method``."""
    for layer in layers(view):
        cls = getattr(layer, "view_class", None)
        if cls is not None:
            function = getattr(cls, method.lower(), None) or getattr(cls, "dispatch_request", None)
            return function if callable(function) else None
    return None


def _functions(app: Flask) -> Iterator[View]:
    """Yield every function that answers requests: the views, and the methods of class views."""
    for view in app.view_functions.values():
        yield view
        for name, cls in _class_methods(view):
            yield getattr(cls, name)


def _class_methods(view: View) -> Iterator[tuple[str, type]]:
    """Yield name and class of every method of a class view that answers requests."""
    for layer in layers(view):
        cls: Any = getattr(layer, "view_class", None)
        for name in ("dispatch_request", *(method.lower() for method in getattr(cls, "methods", None) or ())):
            if callable(getattr(cls, name, None)):
                yield name, cls


def _decorated_in_vain(app: Flask, seen: Seen) -> None:
    """A route decorator registers what is below it: an ``@idempotent`` above it guards nothing."""
    # In this app, or in another one: the same function may well be a bare view here and a guarded one there.
    registered = {mark for each in list(_apps) for function in _functions(each) if (mark := mark_of(function))}
    for view in app.view_functions.values():
        for mark in marks_made_on(view):
            if mark not in registered and mark_of(view) is None:
                seen.errors.append(
                    f"@idempotent above the route of {where(view)} guards nothing, since the route registers what is "
                    "below it. Put @idempotent below the route decorator."
                )


def _safe_methods_only(app: Flask, seen: Seen) -> None:
    guarded = set(seen.marks.values())
    for function in _functions(app):
        mark = mark_of(function)
        if mark is not None and mark not in guarded:
            guarded.add(mark)
            seen.warnings.append(
                f"{mark.where} is marked @idempotent, but its routes take only methods that are never guarded."
            )


def _lost_overrides(app: Flask, seen: Seen) -> None:
    for view in app.view_functions.values():
        if mark_of(view) is not None:
            continue  # the class's decorators guard every method
        for name, cls in _class_methods(view):
            override, *overridden = (vars(base)[name] for base in cls.__mro__ if name in vars(base))
            if mark_of(override) is None and any(mark_of(method) is not None for method in overridden):
                seen.warnings.append(
                    f"{where(override)} overrides a method that is marked @idempotent and is not marked itself."
                )


def _disagreeing_scenes(seen: Seen) -> None:
    """What acts when a token is issued belongs to the scene: two views of one scene must agree on it."""
    first: dict[str, Mark] = {}
    for (endpoint, _), mark in seen.marks.items():
        scene = mark.scene or endpoint
        other = first.setdefault(scene, mark)
        if (mark.binding, mark.store) != (other.binding, other.store):
            seen.errors.append(
                f"The views of scene {scene!r} differ in binding= or store= ({other.where}; {mark.where}): a token is "
                "issued for the scene, so give them the same, or scenes of their own."
            )
