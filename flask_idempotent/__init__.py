"""Flask extension that makes an unsafe request safe to send twice."""

from ._version import __version__
from .core.current import current_claim
from .core.errors import (
    Duplicate,
    Exists,
    Failed,
    IdempotencyError,
    InProgress,
    KeyInvalid,
    KeyMissing,
    KeyReused,
    Locked,
    RecordInvalid,
    ResponseUnavailable,
    SceneInvalid,
    StaleVersion,
    StoreUnavailable,
    TokenForeign,
    TokenInvalid,
    TokenMissing,
    TokenReused,
    TokenUnknown,
    TooSoon,
)
from .core.guard import Guard
from .core.record import Absent, Claim, Holder, Record, State
from .core.store import AdminStore, Store
from .decorator import idempotent
from .extension import Idempotency, idempotency_token

__all__ = [
    "Absent",
    "AdminStore",
    "Claim",
    "Duplicate",
    "Exists",
    "Failed",
    "Guard",
    "Holder",
    "Idempotency",
    "IdempotencyError",
    "InProgress",
    "KeyInvalid",
    "KeyMissing",
    "KeyReused",
    "Locked",
    "Record",
    "RecordInvalid",
    "ResponseUnavailable",
    "SceneInvalid",
    "StaleVersion",
    "State",
    "Store",
    "StoreUnavailable",
    "TokenForeign",
    "TokenInvalid",
    "TokenMissing",
    "TokenReused",
    "TokenUnknown",
    "TooSoon",
    "__version__",
    "current_claim",
    "idempotency_token",
    "idempotent",
]
