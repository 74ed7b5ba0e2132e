"""The published policy: what clients of the guarded routes have to know, as data.

draft-ietf-httpapi-idempotency-key-header-07 wants a resource to publish how it treats keys, and when they expire. Read
from the live app, it cannot say anything but what is done. Callables of the app's are named, never called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

VERSION: Final = 1
"""Of the shape; it grows when a member changes its meaning or goes, not when one comes."""
SYNTAXES: Final[Mapping[str, str]] = {
    "token": "32 hexadecimal digits; hyphens and upper or lower case do not matter",
    "header": (
        "a String of RFC 9651: visible ASCII characters and blanks in double quotes, in which a backslash stands only "
        "before a double quote or another backslash; parameters behind it do not count. The same text bare is the same "
        "key, if it holds no blank, comma or double quote. Several keys, in one line or in several, are refused"
    ),
    "value": (
        'text without control characters, a number, true or false, or a list of these; 1 and "1" are the same key. '
        "What is missing, null, empty or blank is refused by name"
    ),
}
"""How a token or key may be spelled, by the name that a source gives."""
DEVIATIONS: Final[Mapping[str, str]] = {
    "errors": (
        "The draft asks that a repetition after the end gets the first result, be it a success or an error. Errors are "
        "not kept unless a route says so: nothing happened, and a corrected request goes through with the same key."
    ),
    "methods": (
        "The draft is about POST and PATCH. A marked route is guarded for PUT and DELETE, too, where they are listed."
    ),
    "bare": "The draft knows the quoted spelling of a key only. The bare one, which most clients send, is accepted.",
}
"""Where we do other than the draft asks, by name."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting: a word or expression, or else decided by a callable of the app's, whose name is given."""

    value: str | None = None
    decided_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a token or key is read from.

    :param source: ``token``, ``header``, ``param`` or ``key``.
    :param places: where ``name`` is looked for, in this order: header, form, query, json (a member of the outermost
        object), path (a variable part of the rule).
    :param key: what computes the key, for ``key``.
    :param syntax: a name in :data:`SYNTAXES`.
    :param length: most characters.
    """

    source: str
    header: str | None = None
    name: str | None = None
    places: tuple[str, ...] = ()
    key: Choice | None = None
    syntax: str
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Same:
    """What counts as the same request.

    :param within: a client-made key is unique within its ``scene`` and principal, or within the ``view`` (endpoint,
        method and path) and principal; None where there are only tokens.
    :param binding: who may use a token; None where there are none.
    :param content: of the content ``all``, only the ``fields`` named, or ``none`` counts.
    :param ignored: fields that do not count.
    :param max_body: bytes; of a larger body only type and length count.
    """

    within: str | None
    scene: str
    principal: Choice
    binding: Choice | None
    content: Choice
    fields: tuple[str, ...]
    ignored: tuple[str, ...]
    max_body: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """Seconds; None where it does not apply.

    :param token: from issue to use.
    :param token_result: for which a used token is remembered, from completion.
    :param key_result: for which a key is remembered, from completion; later it runs as new.
    :param lease: for which a request that is worked on is waited for after its worker's last news.
    :param wait: for which a duplicate waits for the first request, at most.
    :param interval: between two requests of the same principal or address.
    """

    token: float | None
    token_result: float | None
    key_result: float | None
    lease: float | None
    wait: float | None
    interval: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What becomes of the first request.

    :param success: which answers count as success.
    :param kept: whether the answer to a success is kept, to be replayed.
    :param max_result: bytes; a longer answer is not kept.
    :param consumed: whether the token or key is used up at once, so that it stays so if the worker dies.
    :param failure: ``restored``: as if it had not been sent; ``failed``: it stays failed, but for a 4xx where no
        callable says what succeeds; None where there is neither token nor key.
    """

    success: Choice
    kept: bool
    max_result: int | None
    consumed: bool
    failure: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that this route can give in place of the view's.

    :param retry_after: whether it says when to come again.
    """

    reason: str
    status: int
    retry_after: bool
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One rule of the app and the methods that are guarded in the same way.

    :param required: whether a request without token or key is refused.
    :param lock: of the operations for which this has the same value one runs at a time.
    :param duplicates: ``replay``, ``reject`` or ``ignore``; None where there is neither token nor key.
    :param silent_status: the status of a duplicate under ``ignore``.
    :param store_down: ``refuse``, or ``pass``: the request runs unguarded while the store is away.
    """

    rule: str
    endpoint: str
    methods: tuple[str, ...]
    description: str
    required: bool
    sources: tuple[Source, ...]
    same: Same
    lives: Lives
    lock: Choice | None
    outcomes: Outcomes
    duplicates: Choice | None
    silent_status: int | None
    store_down: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything that is published of one app."""

    version: int
    app: str
    syntaxes: Mapping[str, str]
    deviations: Mapping[str, str]
    routes: tuple[Route, ...]

    def as_json(self) -> dict[str, Any]:
        """Return what can be written as JSON."""
        return asdict(self)
