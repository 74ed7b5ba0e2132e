"""What ``{{ idempotency_token() }}`` renders."""

from __future__ import annotations

from typing import Any, Self

from markupsafe import Markup, escape


class TokenInput(Markup):
    """A hidden input that carries a token, as safe markup.

    Autocomplete is off, since browsers otherwise put an old value back on reload; there is no id, so that several forms
    on one page do not clash.
    """

    value: str
    """The bare token, for an attribute or a script."""

    __slots__ = ("value",)

    @classmethod
    def of(cls, field: str, token: str) -> Self:
        """Return the input named ``field`` that carries ``token``."""
        made = cls(f'<input type="hidden" name="{escape(field)}" value="{escape(token)}" autocomplete="off">')
        made.value = token
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (Markup, (str(self),))
