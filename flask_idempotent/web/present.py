"""The present request itself, on which is noted what happens in it; and the present app.

Not ``g``, which lives across requests under one pushed app context; and not Flask's proxies, through which each step
costs half a microsecond on every route of the app.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flask import current_app, request

# werkzeug documents this method for the purpose
present: Final[Callable[[], Any]] = request._get_current_object  # type: ignore[attr-defined]  # noqa: SLF001
"""Return the present request."""
the_app: Final[Callable[[], Any]] = current_app._get_current_object  # type: ignore[attr-defined]  # noqa: SLF001
"""Return the present app."""
