"""Memory is right for one process: what is said where the server runs several."""

from __future__ import annotations

import logging
from typing import Any

from flask import has_request_context, request

_logger = logging.getLogger(__name__)


class OneProcess:
    """Watches the default store of an app.

    :param chosen: what the app has set as its store.
    """

    __slots__ = ("_said", "unset")

    def __init__(self, chosen: Any) -> None:
        self.unset: bool = chosen is None
        """Whether nothing is set, so that it is memory."""
        # An object that the app has made, or a store that processes share, needs no word.
        self._said = not self.unset and not (isinstance(chosen, str) and chosen.startswith("memory:"))

    def check(self) -> None:
        """Look at the present request. The server's word on its processes is a hint only, so it is all that is asked.

        :raises RuntimeError: no store is set, and there are several processes. For one that is set to memory there is a
            warning, once.
        """
        if self._said or not has_request_context() or not request.environ.get("wsgi.multiprocess"):
            return
        if self.unset:
            raise RuntimeError(
                "No IDEMPOTENCY_STORE is set and the server runs several processes, each of which would keep its "
                "tokens to itself. Set IDEMPOTENCY_STORE, for example to 'redis://localhost:6379/0'."
            )
        self._said = True
        _logger.warning(
            "IDEMPOTENCY_STORE is memory:// and the server runs several processes: a duplicate that reaches another "
            "process runs again. Use a store that they share, for example redis://."
        )
