"""``@idempotent``: the options, the mark on a view, and the wrapper that sees the view's outcome."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar, overload

from flask import current_app, has_request_context

from . import checks
from .core.keys import SCENE
from .extension import state_of
from .web import sources
from .web.attempt import Attempt
from .web.expressions import Expression
from .web.marks import Mark, remember, where
from .web.present import present
from .web.work import guarded_await, guarded_call

F = TypeVar("F", bound=Callable[..., Any])


@overload
def idempotent(view: F, /) -> F: ...
@overload
def idempotent(
    *,
    source: str | Iterable[str] | None = None,
    name: str | None = None,
    key: str | Callable[..., Any] | None = None,
    required: bool = True,
    wait: float | timedelta | None = None,
    lock: str | Callable[..., Any] | None = None,
    interval: float | timedelta | None = None,
    scene: str | None = None,
    store: str | None = None,
    ttl: float | timedelta | None = None,
    lease: float | timedelta | None = None,
    restore_on_error: bool | None = None,
    consume: bool = False,
    on_duplicate: str | Callable[..., Any] | None = None,
    fingerprint: Callable[..., Any] | Iterable[str] | bool | None = None,
    ignore: Iterable[str] = (),
    binding: str | Callable[[], Any] | None = None,
    principal: Callable[[], Any] | None = None,
    final: Callable[[Any], bool] | None = None,
    message: str | None = None,
    description: str = "",
) -> Callable[[F], F]: ...
def idempotent(view: Any = None, /, **options: Any) -> Any:
    """Run a view once for each token or key.

    Goes below the route decorator and below login checks, on functions, async functions and methods of class views. An
    option left out is as the app has it.

    :param source: where the value comes from: ``"token"``, the form's one-time token; ``"header"``, a key that the
        client made, in ``Idempotency-Key``; ``"param"``, one in a field of the form, the query, the JSON object or the
        view's arguments. Of several the first that is present counts. The token, unless ``key=`` or ``interval=`` is
        given.
    :param name: of the parameter (``"idempotency_key"`` if left out), or without ``"param"`` of the header.
    :param key: computes the key: an expression in Jinja's sandbox over ``json``, ``form``, ``args``, ``headers`` and
        the view's arguments, as ``"(json.user_id, json.biz_id)"``, or a callable that takes the view's arguments.
        Asked after the sources, if there are any.
    :param required: whether a request without token or key is refused; if not, it runs unguarded.
    :param wait: seconds for which a duplicate waits, at most, while the first one runs; 0 answers at once.
    :param lock: an expression or callable as ``key=``: of the operations whose lock has the same value one runs at a
        time, whatever their tokens or keys. Who finds it locked is refused, and may come again with the same key.
    :param interval: seconds for which the same principal (or address) may not do the same again.
    :param scene: the operation; the endpoint if left out. A token issued for a scene fits only that scene.
    :param store: name of a store in ``IDEMPOTENCY_STORES``.
    :param ttl: seconds for which the result lives, counted from completion; if left out a token's own life, and for a
        key ``IDEMPOTENCY_RESULT_TTL``.
    :param lease: seconds for which a claim holds while its worker gives no news.
    :param restore_on_error: whether a failure makes the token good again; if not, the record stays failed.
    :param consume: use the token up with the claim and keep nothing: one round trip. Duplicates are refused or
        ignored.
    :param on_duplicate: ``"replay"``, ``"reject"``, ``"ignore"``, or a callable that takes the refusal and returns
        what a view may return.
    :param fingerprint: names of the fields that count as the content, False for none, or a callable that takes the
        view's arguments.
    :param ignore: names of fields that do not count.
    :param binding: who may use a token: ``"ip"``, ``"session"``, ``"user"``, ``"none"`` or a callable.
    :param principal: returns who is asking, None for nobody; an answer is shown only to the same.
    :param final: takes status_code and headers, returns whether the view succeeded.
    :param message: the detail of a duplicate's refusal.
    :param description: the business scene in words, for logs.
    :raises ValueError: an option makes no sense; the message names it.
    :raises TypeError: there is no such option.
    """
    checked = _options(options)
    return _decorate(view, checked) if view is not None else lambda function: _decorate(function, checked)


def _decorate(view: Any, options: dict[str, Any]) -> Any:
    if not callable(view):
        raise TypeError(
            "@idempotent decorates a view function; give options by name, as in @idempotent(scene='order')."
        )
    if inspect.isclass(view):
        raise TypeError(
            "@idempotent decorates functions: put it on the methods of the class, or into its decorators list."
        )
    mark = Mark(where=where(view), **options)
    wrapper = _async_wrapper(view, mark) if inspect.iscoroutinefunction(view) else _wrapper(view, mark)
    remember(mark, view, wrapper)
    return wrapper


def _wrapper(view: Callable[..., Any], mark: Mark) -> Callable[..., Any]:
    @wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        attempt = _attempt(mark)
        if attempt is None:
            return view(*args, **kwargs)
        return guarded_call(attempt, view, args, kwargs)

    return guarded


def _async_wrapper(view: Callable[..., Any], mark: Mark) -> Callable[..., Any]:
    @wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        attempt = _attempt(mark)
        if attempt is None:
            return await view(*args, **kwargs)
        return await guarded_await(attempt, view, args, kwargs)

    return guarded


def _attempt(mark: Mark) -> Attempt | None:
    """Return the attempt under which the view is to run; None where nothing is guarded: outside a request, for a safe
    method, switched off, or called from another view."""
    if not has_request_context():
        return None
    request = present()
    attempt = Attempt.of(request)
    if attempt is not None:
        return None if attempt.entered else attempt
    state = state_of(current_app)
    if not state.guards(request.method) or state.knows(mark):
        return None
    # A decorator that hides its function hid the mark from the hook: claim here.
    return Attempt(state.rules_of_hidden(mark, request.endpoint or ""), request)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Check the options where the mistake was made."""
    options = dict(given)
    unknown = set(options) - _NAMES
    if unknown:
        raise TypeError(f"@idempotent has no option {', '.join(sorted(unknown))}. It has: {', '.join(sorted(_NAMES))}.")
    options["sources"] = _sources(options.pop("source", None), options)
    for name, check in _CHECKS.items():
        if options.get(name) is not None:
            options[name] = check(f"{name}=", options[name])
    if options.get("consume") and options.get("on_duplicate") not in (None, "reject", "ignore"):
        raise ValueError("consume=True keeps no answer: it goes with on_duplicate='reject' or 'ignore'.")
    return {name: value for name, value in options.items() if value is not None}


def _scene(name: str, value: Any) -> str:
    if not isinstance(value, str) or not SCENE.fullmatch(value):
        raise ValueError(f"{name} has 1 to 64 characters of A-Z, a-z, 0-9, '_', '.', ':' and '-', not {value!r}.")
    return value


def _fields(name: str, value: Any) -> Any:
    if callable(value) or isinstance(value, bool):
        return value if value is not True else None
    return _names(name, value)


def _names(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a list of names, as ('amount', 'currency'), not {value!r}.")
    return tuple(value)


def _sources(given: Any, options: dict[str, Any]) -> tuple[str, ...]:
    """Return the doors in their order."""
    if given is None:
        named: tuple[str, ...] = () if options.get("key") is not None or options.get("interval") else ("token",)
    else:
        named = (given,) if isinstance(given, str) else tuple(given)
        if not named or set(named) - set(sources.NAMED) or len(set(named)) < len(named):
            words = ", ".join(map(repr, sources.NAMED))
            raise ValueError(f"source= must be one of {words}, or several of them in a tuple, not {given!r}.")
    if options.get("name") is not None and not {"header", "param"} & set(named):
        raise ValueError("name= is the name of a header or parameter: it goes with source='header' or source='param'.")
    return (*named, sources.EXPRESSION) if options.get("key") is not None else named


def _expression(name: str, value: Any) -> Any:
    """Compile an expression where it was written."""
    if callable(value):
        return value
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"{name} must be an expression, as '(json.user_id, json.biz_id)', or a callable, not {value!r}."
        )
    return Expression(name.rstrip("="), value)


_NAMES = frozenset(Mark.__dataclass_fields__) - {"where", "sources"} | {"source"}
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "name": checks.text_or_none,
    "key": _expression,
    "required": checks.flag,
    "wait": checks.zero_or_seconds,
    "lock": _expression,
    "interval": checks.seconds,
    "scene": _scene,
    "ttl": checks.seconds,
    "lease": checks.seconds,
    "restore_on_error": checks.flag,
    "consume": checks.flag,
    "on_duplicate": checks.policy,
    "fingerprint": _fields,
    "ignore": _names,
    "binding": checks.binding,
    "principal": checks.callable_or_none,
    "final": checks.callable_or_none,
    "message": checks.text_or_none,
    "description": checks.text_or_none,
}
