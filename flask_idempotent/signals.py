"""The core's events as blinker signals; the sender is the app, ``event`` the payload."""

from __future__ import annotations

from typing import Any, Final

from blinker import NamedSignal, Namespace

from .core.events import LEVELS, Event

_signals = Namespace()

ALL: Final[dict[str, NamedSignal]] = {name: _signals.signal(f"idempotency-{name}") for name in LEVELS}
"""One signal for each event, by its name."""

issued = ALL["issued"]
claimed = ALL["claimed"]
completed = ALL["completed"]
restored = ALL["restored"]
kept_failed = ALL["kept_failed"]
duplicate = ALL["duplicate"]
refused = ALL["refused"]
taken_over = ALL["taken_over"]
settle_failed = ALL["settle_failed"]
claim_lost = ALL["claim_lost"]
record_invalid = ALL["record_invalid"]
store_unavailable = ALL["store_unavailable"]
unguarded = ALL["unguarded"]


def send(app: Any, event: Event) -> None:
    """Send an event; costs nothing while nobody listens."""
    signal = ALL[event.name]
    if signal.receivers:
        signal.send(app, event=event)
