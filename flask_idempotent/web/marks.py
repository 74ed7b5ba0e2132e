"""Which functions are guarded, kept by identity: ``functools.wraps`` copies attributes, so an attribute would leak."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final
from weakref import WeakKeyDictionary

View = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mark:
    """The options of one ``@idempotent``; None: as the app has it.

    :param where: file and line of the view, for messages.
    """

    where: str
    sources: tuple[str, ...] = ("token",)
    name: str | None = None
    key: Any = None
    required: bool = True
    wait: float | None = None
    lock: Any = None
    interval: float = 0.0
    scene: str | None = None
    store: str | None = None
    ttl: float | None = None
    lease: float | None = None
    restore_on_error: bool | None = None
    consume: bool = False
    on_duplicate: str | Callable[..., Any] | None = None
    fingerprint: Callable[..., Any] | tuple[str, ...] | bool | None = None
    ignore: tuple[str, ...] = ()
    binding: str | Callable[[], Any] | None = None
    principal: Callable[[], Any] | None = None
    final: Callable[[Any], bool] | None = None
    message: str | None = None
    description: str = ""


_INNER: Final = ("__func__", "__wrapped__", "func")
"""Where a bound method, a decorator and a partial keep the function within."""
_by_wrapper: WeakKeyDictionary[View, Mark] = WeakKeyDictionary()
_by_view: WeakKeyDictionary[View, list[Mark]] = WeakKeyDictionary()


def remember(mark: Mark, view: View, wrapper: View) -> None:
    """Note that ``wrapper`` guards ``view``."""
    _by_wrapper[wrapper] = mark
    innermost = list(layers(view))[-1]
    with suppress(TypeError):  # a callable that cannot be referred to weakly: the look just does not see it
        _by_view.setdefault(innermost, []).append(mark)


def mark_of(view: View) -> Mark | None:
    """Return the mark of a view function, wherever among its layers it was decorated."""
    return next((mark for layer in layers(view) if (mark := made_by(layer)) is not None), None)


def marks_made_on(view: View) -> list[Mark]:
    """Return every mark that was ever made on the innermost function of ``view``."""
    innermost = list(layers(view))[-1]
    try:
        return list(_by_view.get(innermost, ()))
    except TypeError:
        return []


def layers(view: View) -> Iterator[View]:
    """Yield a function and what it wraps, from the outside inwards."""
    seen: set[int] = set()
    current: Any = view
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        inner = next((i for name in _INNER if callable(i := getattr(current, name, None))), None)
        current = inner


def where(view: View) -> str:
    """Return file and line of the innermost function."""
    innermost = list(layers(view))[-1]
    code: CodeType | None = getattr(innermost, "__code__", None)
    name = getattr(innermost, "__qualname__", repr(innermost))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def made_by(layer: View | None) -> Mark | None:
    """Return the mark whose wrapper this function is, without a look at what it wraps."""
    try:
        return None if layer is None else _by_wrapper.get(layer)
    except TypeError:  # not hashable, or no weak reference
        return None
