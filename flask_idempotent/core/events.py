"""What happened, for logs, signals and metrics. A raw token or key never appears, only its digest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

LEVELS: Final = {
    "issued": logging.DEBUG,
    "claimed": logging.DEBUG,
    "completed": logging.DEBUG,
    "restored": logging.INFO,
    "kept_failed": logging.WARNING,
    "duplicate": logging.INFO,
    "refused": logging.INFO,
    "taken_over": logging.WARNING,
    "settle_failed": logging.ERROR,
    "claim_lost": logging.ERROR,
    "record_invalid": logging.ERROR,
    "store_unavailable": logging.ERROR,
    "unguarded": logging.WARNING,
}
"""The events and the level at which each is logged."""


class Event(NamedTuple):  # made in every request: a frozen dataclass takes five times as long
    """One thing that happened to a token or key.

    :param name: which, one of :data:`LEVELS`.
    :param digest: stands for the token or key.
    :param scene: the operation.
    :param description: the view's ``description=``.
    :param reason: the refusal's reason, or the cause in words.
    """

    name: str
    digest: str = ""
    scene: str = ""
    description: str = ""
    reason: str = ""


Listener = Callable[[Event], None]


def log(logger: logging.Logger, event: Event) -> None:
    """Write the event's line."""
    level = LEVELS[event.name]
    if logger.isEnabledFor(level):
        logger.log(
            level,
            "%s scene=%s digest=%s reason=%s description=%s",
            event.name,
            event.scene or "-",
            event.digest or "-",
            event.reason or "-",
            event.description or "-",
        )
