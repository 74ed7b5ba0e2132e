"""The policy of a live app, read from the rules of its guarded views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from flask import Flask
from werkzeug.routing import Rule

from ..core import errors
from ..core.keys import KEY_LIMIT
from .expressions import Expression
from .policy import DEVIATIONS, SYNTAXES, VERSION, Answer, Choice, Lives, Outcomes, Policy, Route, Same, Source
from .rules import Rules

_TOKEN_LENGTH: Final = 64  # 32 digits and hyphens
_RETRY_AFTER: Final = (errors.InProgress, errors.Locked, errors.TooSoon, errors.StoreUnavailable)
_PLACES: Final = ("form", "query", "json")


def policy_of(app: Flask, rules: Mapping[tuple[str, str], Rules]) -> Policy:
    """Return the policy of an app.

    :param rules: what holds, by endpoint and method.
    """
    routes = [route for rule in served(app) for route in _routes(rule, rules)]
    routes.sort(key=lambda route: (route.rule, route.methods))
    used = {source.syntax for route in routes for source in route.sources}
    return Policy(
        version=VERSION,
        app=app.name,
        syntaxes={name: words for name, words in SYNTAXES.items() if name in used},
        deviations=dict(DEVIATIONS),
        routes=tuple(routes),
    )


def served(app: Flask) -> Iterator[Rule]:
    """Yield the rules that lead to a view."""
    return (rule for rule in app.url_map.iter_rules() if not rule.build_only and rule.redirect_to is None)


def _routes(rule: Rule, rules: Mapping[tuple[str, str], Rules]) -> list[Route]:
    """Return a route for each way in which methods of the rule are guarded."""
    found: list[Route] = []
    for method in sorted(rule.methods or ()):
        if (held := rules.get((rule.endpoint, method))) is None:
            continue
        route = _route(rule, held)
        same = next((i for i, known in enumerate(found) if replace(known, methods=()) == route), len(found))
        methods = found[same].methods if same < len(found) else ()
        found[same : same + 1] = [replace(route, methods=(*methods, method))]
    return found


def _route(rule: Rule, rules: Rules) -> Route:
    claims = bool(rules.sources)
    return Route(
        rule=rule.rule,
        endpoint=rule.endpoint,
        methods=(),
        description=rules.description,
        required=rules.required and claims,
        sources=tuple(_source(name, rule, rules) for name in rules.sources),
        same=_same(rules),
        lives=_lives(rules),
        lock=_choice(rules.lock) if rules.lock is not None else None,
        outcomes=_outcomes(rules),
        duplicates=_choice(rules.on_duplicate) if claims else None,
        silent_status=_silent_status(rules) if claims and rules.on_duplicate == "ignore" else None,
        store_down=rules.store_down,
        answers=tuple(_answer(kind, rules) for kind in _refusals(rules)),
    )


def _source(name: str, rule: Rule, rules: Rules) -> Source:
    if name == "token":
        return Source(
            source=name,
            header=rules.token_header if "header" in rules.token_locations else None,
            name=rules.token_field if set(rules.token_locations) - {"header"} else None,
            places=rules.token_locations,
            syntax="token",
            length=_TOKEN_LENGTH,
        )
    if name == "header":
        return Source(source=name, header=rules.key_header, places=("header",), syntax="header", length=KEY_LIMIT)
    if name == "param":
        places = (*_PLACES, "path") if rules.key_param in rule.arguments else _PLACES
        return Source(source=name, name=rules.key_param, places=places, syntax="value", length=KEY_LIMIT)
    return Source(source=name, key=_choice(rules.key), syntax="value", length=KEY_LIMIT)


def _same(rules: Rules) -> Same:
    counts = rules.fingerprint
    if callable(counts):
        content = _choice(counts)
    elif isinstance(counts, tuple):
        content = Choice("fields")
    else:
        content = Choice("none" if counts is False else "all")
    within = "scene" if rules.scene_given else "view"
    return Same(
        within=within if set(rules.sources) - {"token"} else None,
        scene=rules.scene,
        principal=_choice(rules.principal or "detected"),
        binding=_choice(rules.binding) if "token" in rules.sources else None,
        content=content,
        fields=counts if isinstance(counts, tuple) else (),
        ignored=rules.ignore,
        max_body=rules.max_body,
    )


def _lives(rules: Rules) -> Lives:
    token, key = "token" in rules.sources, bool(set(rules.sources) - {"token"})
    return Lives(
        token=_whole(rules.token_ttl) if token else None,
        token_result=_whole(rules.result_ttl) if token else None,
        key_result=_whole(rules.key_ttl) if key else None,
        lease=_whole(rules.lease) if (rules.sources and not rules.consume) or rules.lock is not None else None,
        wait=_whole(rules.wait) if rules.wait else None,
        interval=_whole(rules.interval) if rules.interval else None,
    )


def _whole(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


def _outcomes(rules: Rules) -> Outcomes:
    kept = rules.keeps_answer and bool(rules.sources)
    return Outcomes(
        success=_choice(rules.final or "status below 400"),
        kept=kept,
        max_result=rules.max_result if kept else None,
        consumed=rules.consume,
        failure=("restored" if rules.restore_on_error else "failed") if rules.sources else None,
    )


def _silent_status(rules: Rules) -> int:
    return 200 if rules.answers.format == "envelope" else 204


def _refusals(rules: Rules) -> Iterator[type[errors.IdempotencyError]]:
    token, keys = "token" in rules.sources, set(rules.sources) - {"token"}
    first = rules.sources[0] if rules.sources and rules.required else None
    if token:
        yield from [errors.TokenMissing] if first == "token" else []
        yield from (errors.TokenInvalid, errors.TokenUnknown, errors.TokenForeign, errors.TokenReused)
    if first not in (None, "token") or rules.lock is not None:
        yield errors.KeyMissing
    if keys or rules.lock is not None:
        yield errors.KeyInvalid
    if keys:
        yield errors.KeyReused
    if rules.sources:
        yield from _to_duplicates(rules)
        yield from [] if rules.restore_on_error else [errors.Failed]
        yield errors.RecordInvalid
    yield from [errors.Locked] if rules.lock is not None else []
    yield from [errors.TooSoon] if rules.interval else []
    yield from [errors.StoreUnavailable] if rules.store_down == "refuse" else []


def _to_duplicates(rules: Rules) -> list[type[errors.IdempotencyError]]:
    if rules.on_duplicate == "replay":
        return [errors.InProgress, errors.Duplicate, errors.ResponseUnavailable]
    if rules.on_duplicate == "reject":
        return [errors.Duplicate] if rules.consume else [errors.InProgress, errors.Duplicate]
    return []


def _answer(kind: type[errors.IdempotencyError], rules: Rules) -> Answer:
    status = rules.answers.duplicate_status if kind is errors.Duplicate else kind.status
    return Answer(kind.reason, status, issubclass(kind, _RETRY_AFTER), kind.text)


def _choice(setting: Any) -> Choice:
    if isinstance(setting, Expression):
        return Choice(setting.source)
    if isinstance(setting, str):
        return Choice(setting)
    return Choice(decided_by=getattr(setting, "__name__", type(setting).__name__))
