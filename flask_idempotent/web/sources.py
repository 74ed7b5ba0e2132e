"""Where a request carries its token or key: the doors of a view, asked in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flask import Request

from ..core.errors import KeyInvalid, KeyMissing, TokenMissing
from ..core.keys import header_key, key_digest, key_text, token_digest
from . import tokens
from .content import Content
from .expressions import Expression

if TYPE_CHECKING:
    from .rules import Rules

NAMED: Final = ("token", "header", "param")
"""What ``source=`` may say. ``key=`` is a fourth door, behind the others."""
EXPRESSION: Final = "key"


class Found(NamedTuple):
    """What names the operation.

    :param digest: stands for the token or key.
    :param token: whether it must have been issued.
    """

    digest: str
    token: bool


def find(rules: Rules, request: Request, content: Content, whose: Callable[[], str]) -> Found | None:
    """Return what the first door holds that holds anything; None if none does and none has to.

    :param whose: returns the name space of client-made keys.
    :raises TokenMissing: no door holds anything, and the first one is the token's.
    :raises KeyMissing: likewise, another one's.
    :raises TokenInvalid: the first door that holds something holds something malformed.
    :raises KeyInvalid: likewise.
    """
    missing: TokenMissing | KeyMissing | None = None
    for source in rules.sources:
        try:
            if source == "token":
                token = tokens.find(rules.token_locations, request, rules.token_environ, rules.token_field, content)
                return Found(token_digest(token), True)
            key = _FINDERS[source](rules, request, content)
            return Found(key_digest(scope(rules, request, whose()), key), False)
        except (TokenMissing, KeyMissing) as error:
            missing = missing or error
    if missing is not None and rules.required:
        raise missing
    return None


def scope(rules: Rules, request: Request, whose: str) -> tuple[str, ...]:
    """Return within what a client-made key is unique."""
    if rules.scene_given:
        return ("scene", rules.scene, whose)
    return ("view", request.endpoint or "", request.method, request.path, whose)


def _in_header(rules: Rules, request: Request, _: Content) -> str:
    # A server joins lines of one name with commas, which no key has outside of quotes.
    value: str = request.environ.get(rules.key_environ, "")
    if not value.strip(" \t"):
        raise KeyMissing(f"This operation needs an idempotency key, in the header {rules.key_header}.")
    return header_key(value)


def _in_parameter(rules: Rules, request: Request, content: Content) -> str:
    """The form, the query, the outermost JSON object, the view's arguments: the first that holds one counts."""
    name = rules.key_param
    for values in (content.values(name), content.query_values(name), content.members(name)):
        present = [value for value in values if not _is_empty(value)]
        if len(present) > 1:
            raise KeyInvalid(f"{name} was sent twice; send it once.")
        if present:
            return key_text(present[0], name)
    value = (request.view_args or {}).get(name)
    if _is_empty(value):
        raise KeyMissing(f"This operation needs an idempotency key, in the parameter {name}.")
    return key_text(value, name)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _by_expression(rules: Rules, request: Request, content: Content) -> str:
    return computed(rules.key, "the key", request, content)


def computed(asked: Any, name: str, request: Request, content: Content) -> str:
    """Return the text of what an expression or a callable says of the present request.

    :param name: what the messages call a callable's value.
    :raises KeyMissing: it, or a part of it, is missing, null or empty.
    :raises KeyInvalid: it can be no key.
    """
    arguments = request.view_args or {}
    if not isinstance(asked, Expression):
        return key_text(asked(**arguments), name)
    named = {of: read(request, content) for of, read in SPOKEN_OF.items() if of in asked.names}
    return asked.key({**named, **arguments})


SPOKEN_OF: Final[dict[str, Callable[[Request, Content], Any]]] = {
    "json": lambda _, content: content.json(),
    "form": lambda _, content: content.form(),
    "args": lambda request, _: request.args,
    "headers": lambda request, _: request.headers,
}
"""What expressions may speak of beside the view's arguments, which go before; each is read only if it is named."""


_FINDERS: Final[dict[str, Callable[[Rules, Request, Content], str]]] = {
    "header": _in_header,
    "param": _in_parameter,
    EXPRESSION: _by_expression,
}
