"""What one request asks of the store: the terms of its claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.hold import Terms
from ..core.keys import digest
from .content import Content
from .rules import Rules
from .sources import Found


def terms_of(found: Found, rules: Rules, request: Any, content: Content, principal: Callable[[], str | None]) -> Terms:
    """Return the terms of a token or key.

    :param principal: returns the verified principal.
    """
    return Terms(
        found.digest,
        token=found.token,
        lease=rules.lease,
        life=rules.token_ttl if found.token else rules.key_ttl,
        ttl=rules.result_ttl if found.token else rules.key_ttl,
        scene=rules.scene,
        binding=rules.bindings.of(rules.binding, request, principal) if found.token else "",
        fingerprint=_fingerprint(rules, request, content),
        description=rules.description,
        restore=rules.restore_on_error,
        consume=rules.consume,
    )


def terms_beside(kind: str, name: str, lease: float, rules: Rules) -> Terms:
    """Return the terms of a lock or interval.

    :param name: the digest that stands for it.
    """
    return Terms(
        name,
        token=False,
        lease=lease,
        life=lease,
        ttl=lease,
        scene=rules.scene,
        description=rules.description,
        kind=kind,
    )


def _fingerprint(rules: Rules, request: Any, content: Content) -> str:
    wanted = rules.fingerprint
    if wanted is False:
        return digest(request.method, request.path)
    if callable(wanted):
        return digest(request.method, request.path, str(wanted(**(request.view_args or {}))))
    return content.fingerprint(
        token_fields=(rules.token_field, rules.csrf_field),
        fields=wanted if isinstance(wanted, tuple) else None,
        ignore=rules.ignore,
    )
