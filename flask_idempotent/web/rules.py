"""What holds for one guarded view: its mark, completed by the app's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.guard import Guard
from .identity import Bindings
from .problems import Answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Times are seconds, sizes are bytes; the names are those of the options and of the configuration."""

    guard: Guard
    bindings: Bindings
    answers: Answers
    scene: str
    scene_given: bool
    outermost: bool
    sources: tuple[str, ...]
    key_header: str
    key_environ: str
    key_param: str
    key: Any
    key_ttl: float
    required: bool
    wait: float
    lock: Any
    interval: float
    description: str
    binding: str | Callable[[], Any]
    token_ttl: float
    result_ttl: float
    lease: float
    restore_on_error: bool
    consume: bool
    on_duplicate: str | Callable[..., Any]
    fingerprint: Callable[..., Any] | tuple[str, ...] | bool | None
    ignore: tuple[str, ...]
    principal: Callable[[], Any] | None
    final: Callable[[Any], bool] | None
    token_header: str
    token_environ: str
    token_field: str
    token_locations: tuple[str, ...]
    csrf_field: str
    store_down: str
    max_result: int
    max_body: int

    @property
    def early(self) -> bool:
        """Whether the request hook may claim: a token whose binding needs no login and no session."""
        return self.sources == ("token",) and self.required and self.binding in ("ip", "none") and not self.wait

    @property
    def has_extras(self) -> bool:
        """Whether there is more to claim than the token or key."""
        return self.lock is not None or bool(self.interval)

    @property
    def keeps_answer(self) -> bool:
        """Whether a duplicate could be shown the first answer."""
        return not self.consume and self.on_duplicate not in ("reject", "ignore")
