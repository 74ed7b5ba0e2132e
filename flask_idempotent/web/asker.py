"""Who is asking, found out once for each request and not before it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flask import Request

from . import principals

_UNASKED: Final = object()


class Asker:
    """Who makes one request.

    :param principal: the app's callable, as of ``principal=``.
    """

    __slots__ = ("_of_app", "_request", "_verified", "_viewer")

    def __init__(self, request: Request, principal: Callable[[], Any] | None) -> None:
        self._request = request
        self._of_app = principal
        self._verified: Any = _UNASKED
        self._viewer: str | None = None

    def principal(self) -> str | None:
        """Return the verified principal; None for nobody."""
        if self._verified is _UNASKED:
            self._verified = principals.verified_principal(self._of_app)
        verified: str | None = self._verified
        return verified

    def viewer(self) -> str:
        """Return whom the answer may be shown to."""
        if self._viewer is None:
            self._viewer = principals.viewer(self._request, self.principal())
        return self._viewer

    def namespace(self) -> str:
        """Return whose name space a client-made key lies in."""
        return principals.namespace(self._request, self.principal())
